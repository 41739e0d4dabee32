//! Finds the lines of a log that say an operation.
//!
//! Three words are looked for in the whole text, and the lines that have them are taken apart: at `debug_osd` 15 they are
//! one of sixty. A last line without its end is left out, as it may be cut anywhere.

use std::io;
use std::mem;
use std::ops::Range;

use memchr::memmem::Finder;
use memchr::{memchr, memchr_iter, memrchr};

use super::line::{REPLY, REQUEST, STATS};
use crate::input::Window;

/// What a line says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Word {
    Stats,
    Request,
    Reply,
}

impl Word {
    fn text(self) -> &'static [u8] {
        match self {
            Self::Stats => STATS,
            Self::Request => REQUEST,
            Self::Reply => REPLY,
        }
    }
}

/// A place in a log.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// A line with a word: where in the line that is, the line's number from 1, and its place in the window.
    Line {
        word: Word,
        at: usize,
        number: u64,
        line: Range<usize>,
    },
    /// The start of a line that is too long.
    TooLong { number: u64, line: Range<usize> },
    /// Nothing yet.
    Nothing,
    /// The end of the log.
    End,
}

/// Where in the log a word is next.
#[derive(Clone, Copy)]
enum Next {
    At(u64),
    NotBefore(u64),
}

struct Search {
    word: Word,
    finder: Finder<'static>,
    next: Next,
}

impl Search {
    /// Where the word is first in `text`, which starts at `offset` of the log. No text is searched twice.
    fn find(&mut self, text: &[u8], offset: u64) -> Option<usize> {
        let from = match self.next {
            Next::At(at) if at >= offset => return Some((at - offset) as usize),
            Next::At(_) => 0,
            Next::NotBefore(at) => text.len().min(at.saturating_sub(offset) as usize),
        };
        if from == text.len() {
            return None;
        }
        let found = self.finder.find(&text[from..]).map(|at| from + at);
        self.next = match found {
            Some(at) => Next::At(offset + at as u64),
            None => Next::NotBefore(offset + text.len() as u64),
        };
        found
    }
}

/// A scan of a log, line by line.
pub(crate) struct Scan {
    searches: Vec<Search>,
    line_bytes_max: usize,
    /// Lines that are behind.
    lines: u64,
    /// Of these, the ones without a word since [`Scan::take_others`].
    others: u64,
    /// Bytes at the start of the window that are done with.
    done: usize,
    /// Inside a line that was too long and has been reported.
    skipping: bool,
}

impl Scan {
    pub(crate) fn new(words: &[Word], line_bytes_max: usize) -> Self {
        let search = |&word: &Word| Search {
            word,
            finder: Finder::new(word.text()),
            next: Next::NotBefore(0),
        };
        Self {
            searches: words.iter().map(search).collect(),
            line_bytes_max,
            lines: 0,
            others: 0,
            done: 0,
            skipping: false,
        }
    }

    /// Begins with another log.
    pub(crate) fn begin(&mut self) {
        (self.lines, self.done, self.skipping) = (0, 0, false);
        for search in &mut self.searches {
            search.next = Next::NotBefore(0);
        }
    }

    /// Moves the window behind what is done with.
    pub(crate) fn settle(&mut self, window: &mut Window) {
        window.consume(mem::take(&mut self.done));
    }

    /// Lines without a word since this was asked last.
    pub(crate) fn take_others(&mut self) -> u64 {
        mem::take(&mut self.others)
    }

    /// The next line with a word. It is done with when this is called again.
    pub(crate) fn next(&mut self, window: &mut Window) -> io::Result<Found> {
        self.settle(window);
        if self.skipping {
            let available = window.available();
            let end = memchr(b'\n', available);
            window.consume(end.map_or(available.len(), |end| end + 1));
            if end.is_none() {
                return self.fill(window);
            }
            self.skipping = false;
            self.lines += 1;
        }
        let available = window.available();
        let whole = memrchr(b'\n', available).map_or(0, |at| at + 1);
        let (text, offset) = (&available[..whole], window.offset());
        let words = self.searches.iter_mut();
        let first = words
            .filter_map(|search| Some((search.find(text, offset)?, search.word)))
            .min_by_key(|&(at, _)| at);
        if let Some((at, word)) = first {
            let start = memrchr(b'\n', &text[..at]).map_or(0, |end| end + 1);
            let end = memchr(b'\n', &text[at..]).map_or(text.len(), |length| at + length);
            self.pass(&text[..start]);
            // The line is done with, whatever else it contains.
            self.done = (end + 1).min(text.len());
            self.lines += 1;
            return Ok(Found::Line {
                word,
                at: at - start,
                number: self.lines,
                line: start..end,
            });
        }
        let length = available.len();
        if whole == 0 && length > self.line_bytes_max {
            self.done = length;
            self.skipping = true;
            return Ok(Found::TooLong {
                number: self.lines + 1,
                line: 0..length,
            });
        }
        self.pass(text);
        window.consume(whole);
        self.fill(window)
    }

    fn pass(&mut self, lines: &[u8]) {
        let count = memchr_iter(b'\n', lines).count() as u64;
        self.lines += count;
        self.others += count;
    }

    fn fill(&mut self, window: &mut Window) -> io::Result<Found> {
        // A window that is full holds the start of a line that is too long.
        if window.fill()? || !window.at_end() {
            return Ok(Found::Nothing);
        }
        self.done = window.available().len();
        Ok(Found::End)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;
    use crate::input::decompress::from_read;

    fn found(text: &str, line_bytes_max: usize) -> (Vec<(u64, String)>, u64) {
        let input = from_read(Box::new(Cursor::new(text.as_bytes().to_vec()))).unwrap();
        let mut window = Window::new(input, line_bytes_max);
        let mut scan = Scan::new(&[Word::Stats, Word::Reply], line_bytes_max);
        let mut lines = Vec::new();
        loop {
            match scan.next(&mut window).unwrap() {
                Found::End => break,
                Found::Nothing => {}
                Found::TooLong { number, .. } => lines.push((number, "too long".to_owned())),
                Found::Line {
                    number,
                    line,
                    at,
                    word,
                } => {
                    let line = &window.available()[line];
                    assert!(line[at..].starts_with(word.text()));
                    lines.push((number, String::from_utf8(line.to_vec()).unwrap()));
                }
            }
        }
        scan.settle(&mut window);
        assert_eq!(window.offset(), text.len() as u64);
        (lines, scan.take_others())
    }

    #[test]
    fn lines_with_a_word_are_found_with_their_numbers() {
        let (stats, reply) = ("a log_op_stats osd_op(b", "c -- osd_op_reply(d -- osd_op_reply(e");
        let text = format!("x\n{stats}\n\ny\n{reply}\n{stats}\nz\n{stats}");
        let lines = [(2, stats), (5, reply), (6, stats)].map(|(number, line)| (number, line.to_owned()));
        assert_eq!(found(&text, 1000), (lines.to_vec(), 4));
    }

    #[test]
    fn a_line_that_is_too_long_is_told_once_and_counts_as_one() {
        let stats = "a log_op_stats osd_op(b";
        let text = format!("{stats}\n{}\n{stats}\n", stats.repeat(100_000));
        let (lines, _) = found(&text, 1000);
        let lines: Vec<_> = lines
            .iter()
            .map(|(number, line)| (*number, line.as_str()))
            .collect();
        assert_eq!(lines, [(1, stats), (2, "too long"), (3, stats)]);
    }
}
