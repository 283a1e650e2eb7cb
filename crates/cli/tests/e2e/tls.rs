//! TLS with third-party clients: libnbd's tools and QEMU's, both with GnuTLS.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

use crate::kit::{Array, RAID_1, RAID_6, needs, ok, random_bytes, run};
use crate::remedies::words_of;

/// Folders in the layout of QEMU, libvirt and nbdkit, all from one authority.
pub(crate) struct Certificates {
    folder: tempfile::TempDir,
    issuer: Issuer<'static, KeyPair>,
    authority: String,
}

impl Certificates {
    pub(crate) fn new() -> Self {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = params.self_signed(&key).expect("a certificate").pem();
        let folder = tempfile::tempdir().expect("a folder");
        Self { folder, issuer: Issuer::new(params, key), authority }
    }

    /// The certificate folder of a client or server.
    pub(crate) fn of(&self, role: &str, name: &str) -> PathBuf {
        let folder = self.folder.path().join(name);
        std::fs::create_dir(&folder).expect("a folder");
        let key = KeyPair::generate().expect("a key");
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let params = CertificateParams::new(names).expect("names");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        let files = [
            ("ca-cert.pem".to_owned(), self.authority.clone()),
            (format!("{role}-cert.pem"), certificate.pem()),
            (format!("{role}-key.pem"), key.serialize_pem()),
        ];
        for (name, text) in files {
            let path = folder.join(name);
            std::fs::write(&path, text).expect("a file");
            let mode = std::fs::Permissions::from_mode(0o600);
            std::fs::set_permissions(&path, mode).expect("a mode");
        }
        folder
    }
}

fn with(uri: &str, certificates: &Path) -> String {
    let separator = if uri.contains('?') { '&' } else { '?' };
    format!("{uri}{separator}tls-certificates={}&tls-verify-peer=true", certificates.display())
}

#[test]
fn clients_with_a_certificate_copy_in_and_out_while_a_member_is_lost() {
    needs!("nbdinfo", "nbdcopy", "qemu-img");
    let certificates = Certificates::new();
    let (own, client) = (certificates.of("server", "own"), certificates.of("client", "client"));
    let array = Array::create(RAID_6);
    let own = own.display().to_string();
    let words = ["--nbd", "nbds://127.0.0.1:0/", "--tls", own.as_str()];
    let mut served = array.serve_with(&words, &array.members);
    let serving = served.wait_for("serving");
    let uris: Vec<&str> =
        serving["uris"].as_array().expect("URIs").iter().filter_map(|uri| uri.as_str()).collect();
    let tls = *uris.iter().find(|uri| uri.starts_with("nbds://127.0.0.1:")).expect("by TLS");
    let uri = with(tls, &client);
    assert_eq!(ok("nbdinfo", ["--size", &uri]).trim(), served.size_bytes.to_string());
    let image = array.path("image");
    let size = usize::try_from(served.size_bytes).expect("small");
    std::fs::write(&image, random_bytes(3, size)).expect("an image");
    let (image, copy) = (image.display().to_string(), array.path("copy").display().to_string());
    ok("nbdcopy", ["--flush", &image, &uri]);
    std::fs::remove_file(&array.members[1]).expect("a member");
    ok("nbdcopy", [&uri, &copy]);
    assert!(std::fs::read(&image).expect("one") == std::fs::read(&copy).expect("the other"));
    // QEMU connects with the same folder of certificates.
    let port = tls.trim_end_matches('/').rsplit(':').next().expect("a port");
    let port: String = port.chars().take_while(char::is_ascii_digit).collect();
    let object =
        format!("tls-creds-x509,id=tls,endpoint=client,dir={},verify-peer=on", client.display());
    let options = format!("driver=nbd,host=127.0.0.1,port={port},tls-creds=tls");
    let words = ["compare", "--object", &object, "--image-opts", &options];
    let image_options = format!("driver=raw,file.driver=file,file.filename={image}");
    ok("qemu-img", words.into_iter().chain([image_options.as_str()]));
    // A client without a certificate is refused, and so is a client without TLS.
    let nobody = certificates.folder.path().join("nobody");
    std::fs::create_dir(&nobody).expect("a folder");
    std::fs::copy(client.join("ca-cert.pem"), nobody.join("ca-cert.pem")).expect("a copy");
    assert!(!run("nbdinfo", ["--size", &with(tls, &nobody)]).status.success());
    let plain = tls.replace("nbds://", "nbd://");
    assert!(!run("nbdinfo", ["--size", &plain]).status.success());
    let others = Certificates::new();
    let strangers = others.of("client", "stranger");
    std::fs::copy(client.join("ca-cert.pem"), strangers.join("ca-cert.pem")).expect("a copy");
    assert!(!run("nbdinfo", ["--size", &with(tls, &strangers)]).status.success());
    assert_eq!(ok("nbdinfo", ["--size", &uri]).trim(), served.size_bytes.to_string());
    served.stop();
}

#[test]
fn a_unix_socket_may_be_by_tls_and_for_others_too() {
    needs!("nbdinfo", "qemu-io");
    let certificates = Certificates::new();
    let (own, client) = (certificates.of("server", "own"), certificates.of("client", "client"));
    let array = Array::create(RAID_1);
    let socket = array.path("tls.sock").display().to_string();
    let (own, uri) = (own.display().to_string(), format!("nbds+unix:///?socket={socket}"));
    let words = ["--nbd", uri.as_str(), "--tls", own.as_str(), "--tls-optional"];
    let served = array.serve_with(&words, &array.members);
    let plain = format!("nbd+unix:///?socket={socket}");
    ok("qemu-io", ["-f", "raw", "-c", "write -P 9 12345 54321", plain.as_str()]);
    let size = ok("nbdinfo", ["--size", &with(&uri, &client)]);
    assert_eq!(size.trim(), served.size_bytes.to_string());
    served.stop();
}

#[test]
fn what_cannot_be_secured_is_refused_with_the_way_to_do_it() {
    let certificates = Certificates::new();
    let own = certificates.of("server", "own");
    let (key, own) = (own.join("server-key.pem"), own.display().to_string());
    let array = Array::create(RAID_1);
    let refused = |words: &[&str]| {
        let words: Vec<&str> = ["serve"].into_iter().chain(words.iter().copied()).collect();
        array.refused(&words, &array.members)
    };
    let open = "nbds://0.0.0.0:0/";
    let members = words_of(&array.members);
    let example =
        [("0.0.0.0:10809", "127.0.0.1:0"), ("/etc/pki/braid", &*own), ("MEMBER...", &*members)];
    let without_folder = refused(&["--nbd", open]);
    without_folder.is("B094", 12);
    array.follow_with(&without_folder.json, "Name the folder", &example);
    refused(&["--nbd", open, "--tls", "/nowhere"]).is("B094", 12);
    refused(&["--nbd", "nbds://example.org/", "--tls", &own]).is("B072", 12);
    refused(&["--nbd", open, "--tls", &own, "--tls-clients", "any"]).is("B072", 12);
    refused(&["--nbd", open, "--tls", &own, "--tls-optional"]).is("B072", 12);
    refused(&["--nbd", open, "--tls", &own, "--nbd", "nbd://0.0.0.0:0/"]).is("B072", 12);
    let without_address = refused(&["--tls", &own]);
    without_address.is("B001", 2);
    array.follow_with(&without_address.json, "Serve by TLS", &example);
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).expect("a mode");
    let readable = refused(&["--nbd", open, "--tls", &own]);
    readable.is("B094", 12);
    array.follow(&readable.json, "Let only its owner read it");
    let served = array.serve_with(&["--nbd", open, "--tls", &own], &array.members);
    served.stop();
}
