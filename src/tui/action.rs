//! What a key can mean. One table gives each action its name in keymap files and its line in
//! the help.

macro_rules! actions {
    ($($action:ident = $name:literal, $help:literal;)*) => {
        /// Something a person can ask for with a key.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Action {
            $(#[doc = $help] $action),*
        }

        impl Action {
            /// Every action, in the order of the help.
            pub const ALL: &[Action] = &[$(Action::$action),*];

            /// The name that keymap files use.
            pub fn name(self) -> &'static str {
                match self { $(Action::$action => $name),* }
            }

            /// What it does, in a few words.
            pub fn help(self) -> &'static str {
                match self { $(Action::$action => $help),* }
            }
        }
    };
}

actions! {
    Submit = "submit", "send the message, or run the command";
    Newline = "newline", "start a new line";
    Back = "back", "close what is open, else stop the answer";
    Interrupt = "interrupt", "stop the answer; twice to quit";
    Eof = "eof", "quit, when the message is empty";
    Quit = "quit", "quit";
    Help = "help", "this help";
    Panel = "panel", "the panel: round, timeline, cost, none";
    PanelWider = "panel_wider", "a wider panel";
    PanelNarrower = "panel_narrower", "a narrower panel";
    Explain = "explain", "say what each figure means";
    NextTheme = "next_theme", "next theme";
    Colouring = "colouring", "colour the answer: plain, outcomes, rounds";
    Editor = "editor", "write the message in your editor";
    Fork = "fork", "go on in a copy that ends here";
    Rename = "rename", "give the conversation a title";
    Ghosts = "ghosts", "show rejected drafts in the answer";
    Walk = "walk", "walk the tokens of an answer";
    Mouse = "mouse", "give the mouse back to the terminal, or take it";
    Mode = "mode", "switch speculative and baseline";
    BlockSmaller = "block_smaller", "a smaller block";
    BlockLarger = "block_larger", "a larger block";
    Stats = "stats", "the figures of the session";
    Picture = "picture", "write this screen into a file, as a picture (SVG)";
    CopyAnswer = "copy_answer", "copy the last answer";
    PageUp = "page_up", "scroll a page up";
    PageDown = "page_down", "scroll a page down";
    ScrollUp = "scroll_up", "scroll a line up";
    ScrollDown = "scroll_down", "scroll a line down";
    Top = "top", "go to the beginning";
    Follow = "follow", "go to the end and follow";
    Up = "up", "line up; at the first line, the message before";
    Down = "down", "line down; at the last line, the message after";
    Search = "search", "an earlier message that has what is written";
    Left = "left", "left";
    Right = "right", "right";
    WordLeft = "word_left", "a word left";
    WordRight = "word_right", "a word right";
    LineStart = "line_start", "start of the line";
    LineEnd = "line_end", "end of the line";
    Complete = "complete", "complete the command";
    DeleteBack = "delete_back", "delete the character before";
    DeleteForward = "delete_forward", "delete the character after";
    DeleteWord = "delete_word", "delete the word before";
    DeleteToStart = "delete_to_start", "delete to the start of the line";
    DeleteToEnd = "delete_to_end", "delete to the end of the line";
    Undo = "undo", "undo";
    Redo = "redo", "redo";
}
