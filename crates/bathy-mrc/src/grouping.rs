//! How the requests of a mixed trace are grouped, and numbers for the names that several files share.

use std::collections::HashMap;

/// The number of what is not known.
pub const UNKNOWN: u32 = u32::MAX;

/// Whose cache a request goes through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Grouping {
    /// One for all.
    All,
    /// That of its volume.
    Volume,
    /// That of its OSD.
    Osd,
    /// That of its pool.
    Pool,
    /// That of the node of its OSD; the node number of each OSD.
    Node(Vec<u32>),
}

impl Grouping {
    /// The group of a request of this volume, OSD and pool.
    #[inline]
    pub fn group(&self, volume: u32, osd: u32, pool: u32) -> u32 {
        match self {
            Self::All => 0,
            Self::Volume => volume,
            Self::Osd => osd,
            Self::Pool => pool,
            Self::Node(nodes) => nodes.get(osd as usize).copied().unwrap_or(UNKNOWN),
        }
    }
}

/// Names of several files, under one number each. A file numbers its own names from 0.
#[derive(Clone, Debug, Default)]
pub struct Names {
    known: Vec<String>,
    numbers: HashMap<String, u32>,
    /// Numbers of the names of the file that is being read.
    of_file: Vec<u32>,
}

impl Names {
    /// Another file begins, with names of its own.
    pub fn start_file(&mut self) {
        self.of_file.clear();
    }

    /// The number of the file's name `local`; `name` gives the file's names by their numbers there.
    #[inline]
    pub fn number<'a>(&mut self, local: u32, name: impl Fn(u32) -> &'a str) -> u32 {
        if local == UNKNOWN {
            return UNKNOWN;
        }
        while self.of_file.len() <= local as usize {
            let number = self.intern(name(self.of_file.len() as u32));
            self.of_file.push(number);
        }
        self.of_file[local as usize]
    }

    fn intern(&mut self, name: &str) -> u32 {
        let next = self.known.len() as u32;
        let number = *self.numbers.entry(name.to_owned()).or_insert(next);
        if number == next {
            self.known.push(name.to_owned());
        }
        number
    }

    /// The name of a number.
    pub fn get(&self, number: u32) -> Option<&str> {
        self.known.get(number as usize).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_number_in_all_files() {
        let mut names = Names::default();
        let first = ["a", "b"];
        assert_eq!(
            [1, 0, UNKNOWN].map(|local| names.number(local, |i| first[i as usize])),
            [1, 0, UNKNOWN]
        );
        names.start_file();
        let second = ["c", "b"];
        assert_eq!(
            [0, 1].map(|local| names.number(local, |i| second[i as usize])),
            [2, 1]
        );
        assert_eq!(
            [0, 1, 2, 3].map(|number| names.get(number)),
            [Some("a"), Some("b"), Some("c"), None]
        );
    }

    #[test]
    fn an_osd_without_a_node_is_of_an_unknown_group() {
        let grouping = Grouping::Node(vec![7, 8]);
        assert_eq!(
            [0, 1, 2, UNKNOWN].map(|osd| grouping.group(0, osd, 0)),
            [7, 8, UNKNOWN, UNKNOWN]
        );
    }
}
