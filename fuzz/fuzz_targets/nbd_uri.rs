//! NBD URIs: a parsed URI prints to a text that parses to the same URI.
#![no_main]

use braid_nbd_proto::NbdUri;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(uri) = text.parse::<NbdUri>() {
        assert_eq!(uri.to_string().parse(), Ok(uri));
    }
});
