//! The program as a command: what it printed and how it ended.

use assert_cmd::Command;

/// The end of a run.
#[derive(Debug)]
pub struct Outcome {
    /// The exit code; `None` if a signal ended it.
    pub code: Option<i32>,
    /// Its standard output.
    pub out: String,
    /// Its standard error.
    pub err: String,
}

impl Outcome {
    /// Run `command` to its end.
    pub fn of(command: &mut Command) -> Outcome {
        let output = command.output().unwrap();
        Outcome {
            code: output.status.code(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// That it ended with `code` and wrote no terminal sequences; itself.
    #[allow(dead_code)] // Not every test that runs the program asks.
    pub fn expect(self, code: i32) -> Outcome {
        assert_eq!(self.code, Some(code), "{self:?}");
        assert!(!self.out.contains('\x1b') && !self.err.contains(['\x1b', '\r']), "{self:?}");
        self
    }
}
