//! Names that a trace gives to volumes and pools, numbered in order of appearance.

use std::collections::HashMap;

use crate::event::UNKNOWN;

/// All names of a table together; each is held twice. A million names of 64 bytes fit.
const BYTES_MAX: usize = 64 << 20;

/// A set of names with numbers 0, 1, 2… in order of appearance.
#[derive(Debug, Clone, Default)]
pub struct NameTable {
    names: Vec<Box<str>>,
    // The names as the trace spells them. They differ from `names` only where the trace is not UTF-8.
    numbers: HashMap<Box<[u8]>, u32>,
    // Most records name the volume of the record before.
    last: Option<(Box<[u8]>, u32)>,
    bytes: usize,
}

impl NameTable {
    /// The name with the number.
    pub fn get(&self, number: u32) -> Option<&str> {
        self.names.get(number as usize).map(AsRef::as_ref)
    }

    /// The number of the name.
    pub fn number(&self, name: &str) -> Option<u32> {
        self.number_of(name.as_bytes())
    }

    /// The number of the name as the trace spells it.
    pub(crate) fn number_of(&self, name: &[u8]) -> Option<u32> {
        self.numbers.get(name).copied()
    }

    /// How many names there are.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// True when there is none.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// The names in order of their numbers.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> {
        self.names.iter().map(AsRef::as_ref)
    }

    /// The number of a name, new or known; `None` when it would be the one that is too many, or when all names
    /// together would be too long.
    #[inline]
    pub(crate) fn intern(&mut self, name: &[u8], names_max: usize) -> Option<u32> {
        match &self.last {
            Some((last, number)) if **last == *name => Some(*number),
            _ => self.intern_slow(name, names_max),
        }
    }

    fn intern_slow(&mut self, name: &[u8], names_max: usize) -> Option<u32> {
        let number = if let Some(&number) = self.numbers.get(name) {
            number
        } else {
            if self.names.len() >= names_max.min(UNKNOWN as usize) || name.len() > BYTES_MAX - self.bytes {
                return None;
            }
            self.bytes += name.len();
            let number = self.names.len() as u32;
            self.names.push(String::from_utf8_lossy(name).into());
            self.numbers.insert(name.into(), number);
            number
        };
        match &mut self.last {
            // The allocation is kept when the new name fits it exactly, as numbered volumes mostly do.
            Some((last, last_number)) if last.len() == name.len() => {
                last.copy_from_slice(name);
                *last_number = number;
            }
            last => *last = Some((name.into(), number)),
        }
        Some(number)
    }
}

/// The names that a reader has met so far.
#[derive(Debug, Clone, Default)]
pub struct NameTables {
    /// Names of [`crate::IoEvent::volume`]: image ids, devices, files.
    pub volumes: NameTable,
    /// Names of [`crate::IoEvent::pool`], only where the trace gives names and not numbers.
    pub pools: NameTable,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_numbered_in_order_of_appearance() {
        let mut table = NameTable::default();
        let numbers: Vec<_> = [b"aa", b"bb", b"aa", b"aa", b"cc", b"bb"]
            .iter()
            .map(|name| table.intern(*name, 9))
            .collect();
        assert_eq!(numbers, [0, 1, 0, 0, 2, 1].map(Some));
        assert_eq!(table.iter().collect::<Vec<_>>(), ["aa", "bb", "cc"]);
        assert_eq!(table.number("cc"), Some(2));
        assert_eq!(table.get(3), None);
    }

    #[test]
    fn names_have_a_limit() {
        let mut table = NameTable::default();
        assert_eq!(table.intern(b"a", 1), Some(0));
        assert_eq!(table.intern(b"b", 1), None);
        assert_eq!(table.intern(b"a", 1), Some(0));
    }

    #[test]
    fn the_bytes_of_all_names_have_a_limit() {
        let mut table = NameTable::default();
        let mut name = vec![b'x'; 1 << 20];
        for number in 0..64_u8 {
            name[0] = number;
            assert_eq!(table.intern(&name, 1000), Some(u32::from(number)));
        }
        assert_eq!(table.intern(b"y", 1000), None);
        assert_eq!(table.intern(&name, 1000), Some(63));
    }

    #[test]
    fn names_that_are_not_utf8_stay_apart() {
        let mut table = NameTable::default();
        assert_ne!(table.intern(b"\xff", 9), table.intern(b"\xfe", 9));
    }
}
