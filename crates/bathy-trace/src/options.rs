//! The options of a reader.

use crate::error::TraceError;

/// What to do at a record that is not well formed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnBadRecord {
    /// Report it as an error and end. What was read before it is delivered first.
    #[default]
    Stop,
    /// Count it in the report and go on with the next record.
    Skip,
}

/// Which stage of a block I/O becomes the event, for traces that record several (blktrace, blkparse).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum BlockStage {
    /// `Q`: as the file system or application sent it, before merging. The one to size a cache with.
    #[default]
    Queue,
    /// `D`: as the device got it, after merging.
    Issue,
    /// `C`: as the device completed it; gives the latency from the issue of the same sector.
    Complete,
}

/// How RADOS objects that are not RBD data are read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OtherObjects {
    /// Each object gets a place in a volume of its kind, `cephfs` or `other`, by a hash of its name: right for
    /// reuse and for what an OSD sees, without meaning as an address. Two objects share a place with a chance
    /// of 1 in 2^30.
    #[default]
    Hash,
    /// They are ignored.
    Ignore,
}

/// The options of a reader. [`OpenOptions::default`] suits every format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenOptions {
    /// What to do at a bad record.
    pub on_bad_record: OnBadRecord,
    /// Events in a batch; a reader may exceed it by the I/Os of one record. Default 65,536.
    pub batch_events: usize,
    /// Bytes of one RBD data object (2^order of the image). Default 4 MiB.
    pub object_size_bytes: u64,
    /// RADOS objects that are not RBD data.
    pub other_objects: OtherObjects,
    /// Bytes of a block for formats that give only block or object numbers: raw u32, LIRS, ARC, `oracleGeneral`.
    /// Default 4096.
    pub block_bytes: Option<u32>,
    /// Stage of blktrace and blkparse.
    pub block_stage: BlockStage,
    /// OSD that the file is from, if the file does not contain it. Otherwise a name like `ceph-osd.3.log`
    /// or `osd.3.json` is used.
    pub osd: Option<u32>,
    /// Longest line or record; a longer one is bad. Default 1 MiB. Bounds the memory of a reader.
    pub record_bytes_max: usize,
    /// Most volumes (and pools); a record with one more is bad. Default 2^20.
    pub names_max: usize,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            on_bad_record: OnBadRecord::default(),
            batch_events: 65_536,
            object_size_bytes: 4 << 20,
            other_objects: OtherObjects::default(),
            block_bytes: None,
            block_stage: BlockStage::default(),
            osd: None,
            record_bytes_max: 1 << 20,
            names_max: 1 << 20,
        }
    }
}

impl OpenOptions {
    pub(crate) fn check(&self) -> Result<(), TraceError> {
        if self.batch_events == 0 || self.batch_events > 1 << 26 {
            return Err(TraceError::Option("batch_events must be between 1 and 2^26"));
        }
        if !(4096..=1 << 32).contains(&self.object_size_bytes) {
            return Err(TraceError::Option(
                "object_size_bytes must be between 4 KiB and 4 GiB",
            ));
        }
        if self.block_bytes == Some(0) {
            return Err(TraceError::Option("block_bytes must be at least 1 (got 0)"));
        }
        if !(256..=1 << 28).contains(&self.record_bytes_max) {
            return Err(TraceError::Option(
                "record_bytes_max must be between 256 and 2^28",
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_usable_and_nonsense_is_not() {
        let good = OpenOptions::default();
        good.check().unwrap();
        for bad in [
            OpenOptions {
                batch_events: 0,
                ..good.clone()
            },
            OpenOptions {
                object_size_bytes: 1,
                ..good.clone()
            },
            OpenOptions {
                block_bytes: Some(0),
                ..good.clone()
            },
            OpenOptions {
                record_bytes_max: 1,
                ..good.clone()
            },
        ] {
            assert!(bad.check().is_err(), "{bad:?}");
        }
    }
}
