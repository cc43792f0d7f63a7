//! Text of others, made fit to be shown to people.
//!
//! Names in traces and names of files may hold anything, also sequences that clear a terminal or
//! change its title. Data for programs stays as it is.

use std::borrow::Cow;
use std::fmt::Display;

/// A text with its control characters (C0, DEL, C1) shown as Rust escapes them, such as
/// `\u{1b}` and `\n`. For text that belongs on one line.
#[must_use]
pub fn shown(text: &str) -> Cow<'_, str> {
    escape(text, char::is_control)
}

/// [`shown`] that leaves line ends as they are, for text of several lines.
#[must_use]
pub fn shown_lines(text: &str) -> Cow<'_, str> {
    escape(text, |c| c.is_control() && c != '\n')
}

/// [`shown`] of what has a text.
#[must_use]
pub fn shown_name(name: &(impl Display + ?Sized)) -> String {
    shown(&name.to_string()).into_owned()
}

fn escape(text: &str, is_unfit: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_unfit) {
        return Cow::Borrowed(text);
    }
    let mut fit = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if is_unfit(c) {
            fit.extend(c.escape_default());
        } else {
            fit.push(c);
        }
    }
    Cow::Owned(fit)
}

/// An error and its causes on one line, outermost first.
#[must_use]
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn terminal_sequences_are_shown_and_not_obeyed() {
        for (text, fit) in [
            ("\u{1b}[2Jx", r"\u{1b}[2Jx"),
            ("\u{1b}]0;title\u{7}", r"\u{1b}]0;title\u{7}"),
            ("\u{9b}2J\u{7f}", r"\u{9b}2J\u{7f}"),
            ("a\nb\tc\r", r"a\nb\tc\r"),
            (
                "GET /köln \\ 'x' \u{fffd} 名",
                "GET /köln \\ 'x' \u{fffd} 名",
            ),
        ] {
            assert_eq!(shown(text), fit);
        }
        assert_eq!(shown_lines("a\u{1b}\nb\r"), "a\\u{1b}\nb\\r");
        assert_eq!(shown_name(&'\u{1b}'), r"\u{1b}");
    }

    proptest! {
        #[test]
        fn no_control_character_is_left_and_the_rest_stays(text in any::<String>()) {
            let fit = shown(&text);
            prop_assert!(!fit.contains(char::is_control));
            prop_assert_eq!(shown(&fit), fit.as_ref());
            if !text.contains(char::is_control) {
                prop_assert!(matches!(fit, Cow::Borrowed(same) if same == text));
            }
        }
    }
}
