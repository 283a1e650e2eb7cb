//! Links ISA-L, as its Debian package libisal-dev installs it.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-link-lib=isal");
}
