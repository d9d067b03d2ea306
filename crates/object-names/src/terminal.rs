//! Text of others on a terminal.

/// The text in one line: with a space in place of line ends and tabs, and U+FFFD in place of each other character that
/// a terminal acts on instead of showing it. These are control characters (C0 and C1, which begin escape sequences),
/// line and paragraph separators, and characters that change the direction of text or are invisible, and so make a text
/// look like another one.
#[must_use]
pub fn visible(text: &str) -> String {
    text.replace(['\n', '\r', '\t'], " ").replace(is_hidden, "\u{fffd}")
}

/// Whether a terminal acts on this character, or does not show it.
#[must_use]
pub fn is_hidden(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180e}'
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}' | '\u{e0100}'..='\u{e01ef}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_act_on_is_replaced_and_the_rest_is_kept() {
        assert_eq!(visible("a\r\n\tb"), "a   b");
        for text in
            ["", "Kubernetes v1.36.3", "d\u{e9}j\u{e0} vu, \u{4e2d}\u{6587} \u{2713} \u{1f600}"]
        {
            assert_eq!(visible(text), text);
        }
        let hidden = "\0\u{1b}\u{7f}\u{85}\u{9b}\u{9d}\u{200e}\u{200b}\u{2028}\u{202a}\u{202e}\u{2066}\u{2069}\u{61c}\u{feff}\
                      \u{34f}\u{115f}\u{1160}\u{17b4}\u{17b5}\u{3164}\u{fe00}\u{fe0f}\u{ffa0}\u{e0100}\u{e01ef}";
        for hidden in hidden.chars() {
            assert_eq!(visible(&format!("a{hidden}[31mb")), "a\u{fffd}[31mb", "{hidden:?}");
        }
    }

    #[test]
    fn no_character_of_a_kind_that_acts_is_left() {
        let all: String = ('\0'..=char::MAX).collect();
        let shown = visible(&all);
        assert!(!shown.contains(is_hidden) && !shown.contains(char::is_control));
        assert_eq!(shown.chars().count(), all.chars().count());
    }
}
