//! Errors that a test puts into the engine, to see that it finds them: see [`schedules`](crate::engine::schedules). In a build that
//! is no unit test none is ever made, and the compiler takes the questions out.

/// An error on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// A fill reads the backing before the model has its ticket, so that no write takes its units away.
    FillReadsBeforeItsTicket,
    /// A write is in the cache before the backing has it.
    CopyBeforeTheBacking,
    /// A write that makes the file longer stores the length after its lines.
    LengthAfterTheLines,
    /// A mark is not flushed before the write goes to the backing.
    MarkIsNotFlushed,
    /// Marks are taken back without a flush of the files.
    MarksGoBeforeTheFilesAreDurable,
    /// Marks are taken back before changed records are on the SSD.
    MarksGoBeforeTheRecords,
    /// Marks are taken back also where a write came after the flush, or is under way.
    MarksGoDuringAWrite,
    /// Nobody waits for who attaches or removes the same file.
    ClaimsAreIgnored,
    /// A stop does not wait for requests that are under way.
    StopWaitsForNobody,
    /// What is being put into a slot may be overtaken there by another write.
    StoresOverlap,
    /// A hit that was written to while it was read is believed to be damaged, or whole.
    HitsThatWereWrittenAreBelieved,
    /// What a fill has fetched is served until it is on the SSD, whatever was written meanwhile.
    ArrivedUnitsAreBelieved,
    /// A line that is on its way to the SSD is read there.
    MovesAreReadFromTheirSlots,
    /// A record that changed while its block was written counts as written.
    NewerRecordIsForgotten,
    /// Records that somebody is writing count as written.
    RecordsUnderWayAreWritten,
    /// A stop stores its state though records changed since they were written, as by who makes a source smaller meanwhile.
    StateBesideOlderRecords,
    /// A new file that is empty has no place any more and is found by who opens it before its last user is gone.
    EmptyFilesAreFound,
}

#[cfg(test)]
impl Mutant {
    pub(crate) const ALL: [Self; 17] = [
        Self::FillReadsBeforeItsTicket,
        Self::CopyBeforeTheBacking,
        Self::LengthAfterTheLines,
        Self::MarkIsNotFlushed,
        Self::MarksGoBeforeTheFilesAreDurable,
        Self::MarksGoBeforeTheRecords,
        Self::MarksGoDuringAWrite,
        Self::ClaimsAreIgnored,
        Self::StopWaitsForNobody,
        Self::StoresOverlap,
        Self::HitsThatWereWrittenAreBelieved,
        Self::ArrivedUnitsAreBelieved,
        Self::MovesAreReadFromTheirSlots,
        Self::NewerRecordIsForgotten,
        Self::RecordsUnderWayAreWritten,
        Self::StateBesideOlderRecords,
        Self::EmptyFilesAreFound,
    ];
}

/// Whether it is to be made.
#[cfg(not(test))]
pub(crate) const fn is_made(_: Mutant) -> bool {
    false
}

#[cfg(test)]
pub(crate) use for_tests::{MADE, is_made};

#[cfg(test)]
mod for_tests {
    use std::cell::Cell;

    use super::Mutant;

    thread_local! {
        /// The error of this thread, whose exploration runs in it alone.
        pub(crate) static MADE: Cell<Option<Mutant>> = const { Cell::new(None) };
    }

    pub(crate) fn is_made(mutant: Mutant) -> bool {
        MADE.get() == Some(mutant)
    }
}
