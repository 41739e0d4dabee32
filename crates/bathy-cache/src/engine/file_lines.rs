//! The lines of a file are forgotten, because it changed or was removed, or because the file gives way to others.

use std::ops::Range;

use crate::engine::Engine;
use crate::format::{first_key, number_of};
use crate::index::files::Files;
use crate::sync::lock;

/// So many lines are walked over in the time of the look-up of one.
const WALKED_PER_LOOKUP: u64 = 32;
/// Lines that are looked up at least of a file that gives way.
const LOOKED_UP_MIN: u64 = 64;
/// Files that gave way may leave a share of the cache's lines behind.
const LEFTOVER_SHARE: u64 = 64;

impl Engine {
    /// Takes the files that are used least out of the full file table, with their lines.
    pub(crate) fn make_room(&self, files: &mut Files) {
        let (slots, leaving) = files.next_to_leave();
        // An error leaves the table full: the file is not cached.
        if files.remove(&slots, &self.ssd).is_err() {
            return;
        }
        for (number, lines) in leaving {
            files.evicted += 1;
            files.evicted_lines += u64::from(lines);
            // Most have their lines at the front. For a single file nobody walks over the whole cache.
            let looked_up = LOOKED_UP_MIN + 2 * u64::from(lines);
            if self.drop_found(number, 0..looked_up.min(self.looked_up_max())) > 0 {
                files.leftover.push(number);
            }
        }
    }

    /// Forgets what is left of files that gave way, if it is much: a walk over all lines is worth it then.
    pub(crate) fn drop_leftover(&self) {
        let leftover = lock(&self.files).take_leftover(self.capacity_lines / LEFTOVER_SHARE);
        if !leftover.is_empty() {
            self.drop_matching(&|key| leftover.contains(&number_of(key)));
        }
    }

    /// So many look-ups take as long as a walk over all lines.
    pub(crate) fn looked_up_max(&self) -> u64 {
        (self.capacity_lines / WALKED_PER_LOOKUP).max(1)
    }

    /// Forgets the lines of a file in a range of them. No request to these is under way.
    pub(crate) fn drop_lines(&self, number: u32, lines: Range<u64>) {
        let first = first_key(number);
        let lines = lines.start..lines.end.min(1 << 32);
        let looked_up_end = lines.end.min(lines.start.saturating_add(self.looked_up_max()));
        let left = self.drop_found(number, lines.start..looked_up_end);
        if left > 0 && looked_up_end < lines.end {
            self.drop_matching(&|key| number_of(key) == number && lines.contains(&(key - first)));
        }
    }

    /// Looks lines of a file up and forgets them: how many it has elsewhere.
    fn drop_found(&self, number: u32, lines: Range<u64>) -> u32 {
        // Of a removed file that is open the number may be forgotten before its lines are.
        let mut left = self.residency.lines_of(number).unwrap_or(u32::MAX);
        for line in lines {
            if left == 0 {
                break;
            }
            let key = first_key(number) + line;
            left -= u32::from(self.shard(key).forget(key));
        }
        left
    }
}
