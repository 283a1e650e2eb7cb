//! `GET /`: how the array is, in a browser. One page, in the program, that takes nothing from elsewhere and asks `/v1/array` and
//! `/v1/elevators` again and again; what it shows is what `braid status` and `braid top` show.
//!
//! Where it stands: beside the routes. The page is the same for every array: nothing that an array says is in it, so that
//! there is nothing to be escaped here, and in the browser all of it goes through `textContent`.
//!
//! What other pages may ask is a matter of [`crate::asker`].
//!
//! Invariants
//! - The policy lets the page run its one script, use its one style and ask the server that it came from, and nothing else
//!   `[check: the_policy_allows_the_page_what_is_in_it_and_nothing_else]`.
//! - The page names no other place `[check: the_page_takes_nothing_from_elsewhere]`.

use axum::http::{HeaderName, header};
use axum::response::{IntoResponse, Response};

/// The page.
const PAGE: &str = include_str!("page.html");

/// What the page may do. Script and style are known by their SHA-256: a test says the new ones when they have changed.
const POLICY: &str = "default-src 'none'; \
    script-src 'sha256-fo6HYwQm78VRDkZOIqNl0HS1bFXpISR7h8cR5TLlZzw='; \
    style-src 'sha256-OycYglW63gCEi1DT+KSMxk4wOla7OD+sIlAysiUsqdo='; \
    connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
    require-trusted-types-for 'script'; trusted-types 'none'";

/// Headers of the page.
const HEADERS: [(HeaderName, &str); 6] = [
    (header::CONTENT_TYPE, "text/html; charset=utf-8"),
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::CACHE_CONTROL, "no-store"),
];

/// Answers with the page.
pub(crate) async fn page() -> Response {
    (HEADERS, PAGE).into_response()
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::prelude::BASE64_STANDARD;

    use super::*;

    /// What is between the only such tags.
    fn inside(name: &str) -> &'static str {
        let (begin, end) = (format!("<{name}>"), format!("</{name}>"));
        assert_eq!(PAGE.matches(&format!("<{name}")).count(), 1, "one {name}");
        PAGE.split_once(&begin).and_then(|(_, rest)| rest.split_once(&end)).expect("both tags").0
    }

    #[test]
    fn the_policy_allows_the_page_what_is_in_it_and_nothing_else() {
        for name in ["script", "style"] {
            let digest = ring::digest::digest(&ring::digest::SHA256, inside(name).as_bytes());
            let allowed = format!("{name}-src 'sha256-{}';", BASE64_STANDARD.encode(digest));
            assert!(POLICY.contains(&allowed), "the page has changed; its {name}: {allowed}");
        }
        assert!(POLICY.starts_with("default-src 'none'; "));
        assert!(!POLICY.contains("unsafe") && !POLICY.contains('*') && !POLICY.contains("http"));
        // Attributes that are scripts or styles are not in the policy.
        for attribute in [" style=", " onclick=", " onload=", " onerror=", "javascript:"] {
            assert!(!PAGE.contains(attribute), "{attribute}");
        }
    }

    #[test]
    fn the_page_takes_nothing_from_elsewhere() {
        for part in [" src=", " href=", "@import", "url(", "import(", "innerHTML", "outerHTML"] {
            assert!(!PAGE.contains(part), "{part}");
        }
        let places = PAGE.matches("://").count();
        assert_eq!(places, 1, "the name of SVG's space is no place");
        assert!(PAGE.contains("http://www.w3.org/2000/svg"));
        for changing in ["POST", "PATCH", "PUT", "DELETE"] {
            assert!(!PAGE.contains(changing), "it only looks: {changing}");
        }
    }
}
