//! Shared by all drawings and the table: a variant's colour, text in SVG, and a number in four
//! figures.

pub(super) fn colour(variant: &str, others: &[&str]) -> &'static str {
    const OTHERS: [&str; 5] = ["#7f6bb0", "#4f9d69", "#c25b56", "#5aa7b5", "#a08060"];
    match variant {
        "before" => "#9aa0a6",
        "seed" => "#e0a030",
        "braid" => "#1f6fb2",
        "bound" => "#222222",
        _ => OTHERS[others.iter().position(|other| *other == variant).unwrap_or(0) % OTHERS.len()],
    }
}

pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Formats a number with four significant figures.
pub(crate) fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size >= 1e6 => format!("{:.2}M", value / 1e6),
        size if size >= 1000.0 => format!("{value:.0}"),
        size if size >= 100.0 => format!("{value:.1}"),
        size if size >= 10.0 => format!("{value:.2}"),
        size if size >= 0.01 => format!("{value:.3}"),
        _ => format!("{value:.2e}"),
    }
}
