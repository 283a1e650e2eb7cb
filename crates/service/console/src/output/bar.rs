//! Progress as a bar of characters.
//!
//! The bar consists of blocks and eighths of blocks if the locale is UTF-8, else of plain
//! characters.

const CELLS: usize = 20;
/// Characters that fill 0 to 7 eighths of a cell.
const EIGHTHS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];

/// Whether the locale's encoding is UTF-8: the first locale variable that is set decides, in the
/// order of POSIX.
pub fn is_unicode() -> bool {
    let says = |name| std::env::var(name).ok().filter(|value: &String| !value.is_empty());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(says).unwrap_or_default();
    let locale = locale.to_ascii_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}

/// A bar for a percentage.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "of 0 to 160")]
pub fn bar(percent: f64, is_unicode: bool) -> String {
    let parts = (percent.clamp(0.0, 100.0) / 100.0 * (CELLS * 8) as f64) as usize;
    let (full, rest) = (parts / 8, parts % 8);
    let mut bar: String = std::iter::repeat_n(if is_unicode { '█' } else { '#' }, full).collect();
    if is_unicode && rest > 0 {
        bar.push(EIGHTHS[rest]);
    }
    let left = CELLS - bar.chars().count();
    bar.extend(std::iter::repeat_n(if is_unicode { '·' } else { '.' }, left));
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_has_one_length_and_grows() {
        assert_eq!(bar(41.2, true), "████████▏···········");
        assert_eq!(bar(41.2, false), "########............");
        assert_eq!(bar(0.0, true), "····················");
        assert_eq!(bar(100.0, false), "####################");
        for percent in -1..=101 {
            for is_unicode in [false, true] {
                assert_eq!(bar(f64::from(percent), is_unicode).chars().count(), CELLS, "{percent}");
            }
        }
    }
}
