//! `GET /`: the array's state in a browser. The page is `page.html` next to this file, compiled
//! into the program. The page loads no other file, polls `/v1/array` and `/v1/elevators`, and shows
//! the content of `braid status` and `braid top`.
//!
//! The page is the same for every array. It contains no text from an array, so the server need not
//! escape any; the browser inserts all text through `textContent`.
//!
//! [`crate::origin_check`] limits requests from other pages.
//!
//! Invariants
//! - The policy lets the page only run its one script, use its one style and request its own server
//!   `[check: the_policy_allows_the_page_what_is_in_it_and_nothing_else]`.
//! - The page names no other address `[check: the_page_takes_nothing_from_elsewhere]`.

use axum::http::{HeaderName, header};
use axum::response::{IntoResponse, Response};

const PAGE: &str = include_str!("page.html");

/// The page's content security policy. The policy identifies script and style by SHA-256 sums; if
/// these change, a test prints the new sums.
const POLICY: &str = "default-src 'none'; \
    script-src 'sha256-MDmMnWskF1BbPooMQH3kuBs1iPSpDb6bdiXtvNk3UbI='; \
    style-src 'sha256-OycYglW63gCEi1DT+KSMxk4wOla7OD+sIlAysiUsqdo='; \
    connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
    require-trusted-types-for 'script'; trusted-types 'none'";

const HEADERS: [(HeaderName, &str); 6] = [
    (header::CONTENT_TYPE, "text/html; charset=utf-8"),
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::CACHE_CONTROL, "no-store"),
];

pub(crate) async fn page() -> Response {
    (HEADERS, PAGE).into_response()
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::prelude::BASE64_STANDARD;

    use super::*;

    /// The text between the page's only pair of tags with this name.
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
        // The policy allows no script or style in attributes, so the page has none.
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
