//! Hosts as network namespaces on one bridge, between which packets of one direction are dropped.
//!
//! Every place (a member server, the store, an owner's host) has a namespace with an address.
//! Addresses are not loopback, so members and the store talk TLS. Needs root. A drop of [`Network`]
//! removes the namespaces, and their links with them.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

use crate::programs::run;

/// Programs that namespaces, links and dropped packets need.
pub(super) const PROGRAMS: [&str; 2] = ["ip", "nft"];

pub(super) struct Network {
    /// The prefix of the namespaces' names: each run has its own prefix.
    name: String,
    places: usize,
    tls: PathBuf,
}

impl Network {
    /// Makes a namespace for each place, and certificates for all of them in `folder`.
    pub(super) fn new(folder: &Path, places: usize) -> Result<Self> {
        let name = format!("braid-{}", std::process::id());
        let network = Self { name, places, tls: folder.join("tls") };
        network.certify()?;
        let hub = network.hub();
        ip(&["netns", "add", &hub])?;
        ip(&["-n", &hub, "link", "add", "bridge", "type", "bridge"])?;
        ip(&["-n", &hub, "link", "set", "bridge", "up"])?;
        for place in 0..places {
            let (own, port) = (network.namespace(place), format!("port{place}"));
            let address = format!("{}/24", network.address(place));
            ip(&["netns", "add", &own])?;
            let peer = ["peer", "name", "eth0", "netns", &own];
            ip(&[&["-n", &hub, "link", "add", &port, "type", "veth"], &peer[..]].concat())?;
            ip(&["-n", &hub, "link", "set", &port, "master", "bridge", "up"])?;
            ip(&["-n", &own, "address", "add", &address, "dev", "eth0"])?;
            ip(&["-n", &own, "link", "set", "eth0", "up"])?;
            ip(&["-n", &own, "link", "set", "lo", "up"])?;
            network.nft(place, "add table ip cut")?;
            network.nft(place, "add chain ip cut in { type filter hook input priority 0; }")?;
        }
        Ok(network)
    }

    fn hub(&self) -> String {
        format!("{}-hub", self.name)
    }

    fn namespace(&self, place: usize) -> String {
        format!("{}-{place}", self.name)
    }

    pub(super) fn address(&self, place: usize) -> String {
        format!("10.77.0.{}", place + 1)
    }

    /// The folder with the certificates of servers and of clients.
    pub(super) fn certificates(&self) -> &Path {
        &self.tls
    }

    /// A program that starts `program` at a place, with the same process ID.
    pub(super) fn program_at(&self, place: usize, program: &Path) -> Result<PathBuf> {
        use std::os::unix::fs::PermissionsExt;
        let name = program.file_name().context("a program")?.display();
        let path = self.tls.with_file_name(format!("{name}-at{place}"));
        let own = self.namespace(place);
        let line = format!("exec ip netns exec {own} '{}' \"$@\"", program.display());
        std::fs::write(&path, format!("#!/bin/sh\n{line}\n"))?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700))?;
        Ok(path)
    }

    /// Drops all packets from one place that arrive at the other.
    pub(super) fn cut(&self, from: usize, to: usize) -> Result<()> {
        self.nft(to, &format!("add rule ip cut in ip saddr {} drop", self.address(from)))
    }

    pub(super) fn heal(&self, to: usize) -> Result<()> {
        self.nft(to, "flush chain ip cut in")
    }

    fn nft(&self, place: usize, line: &str) -> Result<()> {
        ip(&["netns", "exec", &self.namespace(place), "nft", line])
    }

    /// Makes one certificate authority, and one certificate for every place.
    fn certify(&self) -> Result<()> {
        let (authority_key, key) = (KeyPair::generate()?, KeyPair::generate()?);
        let mut params = CertificateParams::new(Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = params.self_signed(&authority_key)?.pem();
        let names: Vec<String> = (0..self.places).map(|place| self.address(place)).collect();
        let issuer = Issuer::new(params, authority_key);
        let certificate = CertificateParams::new(names)?.signed_by(&key, &issuer)?.pem();
        std::fs::create_dir(&self.tls)?;
        std::fs::write(self.tls.join("ca-cert.pem"), authority)?;
        for role in ["server", "client"] {
            std::fs::write(self.tls.join(format!("{role}-cert.pem")), &certificate)?;
            let file = self.tls.join(format!("{role}-key.pem"));
            std::fs::write(&file, key.serialize_pem())?;
            run(Command::new("chmod").arg("600").arg(&file))?;
        }
        Ok(())
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let places = (0..self.places).map(|place| self.namespace(place));
        for name in places.chain([self.hub()]) {
            // After a failure of `new` some of the namespaces do not exist.
            let _ = ip(&["netns", "delete", &name]);
        }
    }
}

fn ip(words: &[&str]) -> Result<()> {
    run(Command::new("ip").args(words)).with_context(|| words.join(" "))
}
