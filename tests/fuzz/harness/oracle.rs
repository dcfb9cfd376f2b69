//! Python, asked over a pipe what it makes of JSON and gzip.

use std::{
    cell::RefCell,
    fmt::Write as _,
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

const SCRIPT: &str = include_str!("oracle.py");

/// A running interpreter. Asked one question after the other; it ends with its pipe.
pub struct Python {
    pipes: RefCell<(ChildStdin, BufReader<ChildStdout>)>,
    _child: Child,
}

/// What Python makes of two JSON texts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JsonVerdict {
    /// Whether the first has one meaning.
    pub first: bool,
    /// Whether the second has.
    pub second: bool,
    /// Whether both have, and it is the same.
    pub same: bool,
}

impl Python {
    /// Starts one. Panics when there is none: a comparison that is left out would prove nothing.
    pub fn start() -> Self {
        let mut child = Command::new("python3")
            .args(["-I", "-c", SCRIPT])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 is there, as tests/run sees to");
        let pipes = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Self { pipes: RefCell::new(pipes), _child: child }
    }

    /// What it makes of two JSON texts.
    pub fn json(&self, first: &[u8], second: &[u8]) -> JsonVerdict {
        let answer = self.ask(&format!("json {} {}", hex(first), hex(second)));
        let flags: Vec<bool> = answer.split(' ').map(|flag| flag == "1").collect();
        let [first, second, same] = flags[..] else { panic!("python said {answer:?}") };
        JsonVerdict { first, second, same }
    }

    /// What these bytes inflate to, cut a byte after 1 MiB; none when they are not gzip.
    pub fn gunzip(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        let answer = self.ask(&format!("gzip {}", hex(bytes)));
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        (answer != "!").then(|| answer.as_bytes().chunks(2).map(byte).collect())
    }

    fn ask(&self, question: &str) -> String {
        let (stdin, stdout) = &mut *self.pipes.borrow_mut();
        writeln!(stdin, "{question}").expect("python listens");
        stdin.flush().unwrap();
        let mut answer = String::new();
        stdout.read_line(&mut answer).unwrap();
        assert!(answer.ends_with('\n'), "python ended; what it said stands above");
        answer.trim_end().to_owned()
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}
