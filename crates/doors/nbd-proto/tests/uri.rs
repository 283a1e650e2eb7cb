//! Tests NBD URIs: the specification's examples, refused URIs, and printing as the inverse of
//! parsing.

use braid_nbd_proto::{NbdUri, Transport, UriError};
use proptest::prelude::*;

fn parse(text: &str) -> Result<NbdUri, UriError> {
    text.parse()
}

fn tcp(host: &str, port: u16, export: &str) -> Result<NbdUri, UriError> {
    let transport = Transport::Tcp { host: host.into(), port };
    Ok(NbdUri { transport, tls: false, export: export.into(), certificates: None })
}

fn unix(socket: &[u8], export: &str) -> Result<NbdUri, UriError> {
    let transport = Transport::Unix { socket: socket.into() };
    Ok(NbdUri { transport, tls: false, export: export.into(), certificates: None })
}

#[test]
fn the_specifications_examples() {
    assert_eq!(parse("nbd://example.com:10809/export"), tcp("example.com", 10809, "export"));
    assert_eq!(parse("nbd+unix:///export?socket=nbd.sock"), unix(b"nbd.sock", "export"));
    assert_eq!(parse("nbd://example.com/disk"), tcp("example.com", 10809, "disk"));
    assert_eq!(parse("nbd+unix:///disk?socket=sock"), unix(b"sock", "disk"));
    assert_eq!(parse("nbd://example.com/"), tcp("example.com", 10809, ""));
    assert_eq!(parse("nbd://example.com"), tcp("example.com", 10809, ""));
    assert_eq!(parse("nbd://example.com//disk"), tcp("example.com", 10809, "/disk"));
    let spaced = tcp("example.com", 10809, "hello world");
    assert_eq!(parse("nbd://example.com/hello%20world"), spaced);
    assert_eq!(parse("NBD://[::1]:7/x"), tcp("::1", 7, "x"));
    assert_eq!(parse("nbd://[::1]"), tcp("::1", 10809, ""));
    assert_eq!(parse("nbd+unix:///?socket=%2Frun%2Fa%25b"), unix(b"/run/a%b", ""));
    let by_tls = |uri: Result<NbdUri, UriError>| uri.map(|uri| NbdUri { tls: true, ..uri });
    assert_eq!(parse("nbds://example.com/disk"), by_tls(tcp("example.com", 10809, "disk")));
    assert_eq!(parse("nbds+unix:///?socket=s"), by_tls(unix(b"s", "")));
}

#[test]
fn a_client_names_its_certificates() {
    let uri = "nbds://example.com:10809/disk?tls-certificates=/etc/pki/braid";
    let parsed = parse(uri).expect("a URI");
    assert_eq!(parsed.certificates.as_deref(), Some(&b"/etc/pki/braid"[..]));
    assert_eq!(parsed.to_string(), uri);
    let both = "nbds+unix:///?socket=s&tls-certificates=c";
    assert_eq!(parse(both).expect("a URI").to_string(), both);
    let misplaced = UriError::Parameter("tls-certificates".into());
    for bad in ["nbd://h/?tls-certificates=c", "nbds://h/?tls-certificates="] {
        assert_eq!(parse(bad), Err(misplaced.clone()), "{bad}");
    }
}

#[test]
fn what_cannot_be_used_is_refused_by_name() {
    assert_eq!(parse("http://h/"), Err(UriError::Scheme("http".into())));
    assert_eq!(parse("/run/x.sock"), Err(UriError::NoScheme));
    assert_eq!(parse(""), Err(UriError::NoScheme));
    assert_eq!(parse("nbd+unix:///x"), Err(UriError::NoSocket));
    assert_eq!(parse("nbd+unix:///x?socket="), Err(UriError::NoSocket));
    assert_eq!(parse("nbd+unix://host/x?socket=s"), Err(UriError::HostWithUnix));
    assert_eq!(parse("nbd:///x"), Err(UriError::NoHost));
    assert_eq!(parse("nbd://h/?socket=s"), Err(UriError::Parameter("socket".into())));
    assert_eq!(parse("nbd://h/?tls-type=x509"), Err(UriError::Parameter("tls-type".into())));
    assert_eq!(parse("nbd+unix:///?socket=a&socket=b"), Err(UriError::Parameter("socket".into())));
    for authority in ["u@h", "h:x", "h:65536", "h:+5", "[::1", "[nonsense]", ":5", "::1", "[::1]x"]
    {
        let refused = parse(&format!("nbd://{authority}/"));
        assert_eq!(refused, Err(UriError::Authority(authority.into())), "{authority}");
    }
    for bad in
        ["nbd://h/%", "nbd://h/%4", "nbd://h/%zz", "nbd://h/%ff", "nbd://h/%00", "nbd://h/#f"]
    {
        assert!(matches!(parse(bad), Err(UriError::Encoding(_))), "{bad}");
    }
    assert_eq!(parse(&format!("nbd://h/{}", "n".repeat(4097))), Err(UriError::ExportTooLong));
    assert!(parse(&format!("nbd://h/{}", "n".repeat(4096))).is_ok());
}

proptest! {
    #[test]
    fn printed_uris_parse_back(
        export in "[^\0]{0,40}",
        socket in prop::collection::vec(1_u8..=255, 1..40),
        host in prop_oneof![Just("::1".to_owned()), "[a-z0-9.-]{1,20}", "[^\0:/@\\[\\]]{1,8}"],
        port in any::<u16>(),
        tls in any::<bool>(),
    ) {
        let transport = Transport::Unix { socket };
        let unix = NbdUri { transport, tls, export: export.clone(), certificates: None };
        prop_assert_eq!(parse(&unix.to_string()), Ok(unix));
        let transport = Transport::Tcp { host, port };
        let tcp = NbdUri { transport, tls, export, certificates: None };
        prop_assert_eq!(parse(&tcp.to_string()), Ok(tcp));
    }

    #[test]
    fn nothing_panics_the_parser(text in "(nbd|nbd\\+unix|nbds)?(:)?(//)?.{0,60}") {
        if let Ok(uri) = parse(&text) {
            prop_assert_eq!(parse(&uri.to_string()), Ok(uri));
        }
    }
}
