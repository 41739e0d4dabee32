//! The formats by name.

use std::fmt;
use std::str::FromStr;

use crate::error::TraceError;

/// What the times of a trace count from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeBase {
    /// Nanoseconds since 1970-01-01 UTC.
    Unix,
    /// Nanoseconds since a start that the trace does not tell.
    Relative,
    /// There is no time: 0 throughout.
    None,
}

macro_rules! formats {
    ($($(#[$doc:meta])* $variant:ident, $name:literal, $base:ident;)+) => {
        /// A trace format that can be read.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Format {
            $($(#[$doc])* $variant,)+
        }

        impl Format {
            /// Every format.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The name by which users ask for it.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }

            /// What the times of its events count from.
            pub fn time_base(self) -> TimeBase {
                match self {
                    $(Self::$variant => TimeBase::$base,)+
                }
            }
        }
    };
}

formats! {
    /// Ceph `dump_historic_ops` and its relatives, JSON.
    OpHistory, "op-history", Unix;
    /// Ceph OSD log at `debug_osd` 15: `log_op_stats` lines.
    OsdLog, "osd-log", Unix;
    /// Ceph OSD log at `debug_ms` 1: `osd_op` and `osd_op_reply` messages.
    OsdMessages, "osd-messages", Unix;
    /// Text of `blkparse`.
    Blkparse, "blkparse", Relative;
    /// Binary of `blktrace`, per CPU or merged.
    Blktrace, "blktrace", Relative;
    /// fio iolog version 2.
    FioV2, "fio-v2", Relative;
    /// fio iolog version 3.
    FioV3, "fio-v3", Relative;
    /// Virtual SCSI commands, version 1.
    Vscsi1, "vscsi1", Relative;
    /// Virtual SCSI commands, version 2.
    Vscsi2, "vscsi2", Relative;
    /// `oracleGeneral` of `libCacheSim`.
    OracleGeneral, "oracle-general", Relative;
    /// MSR Cambridge CSV (SNIA IOTTA).
    Msr, "msr", Unix;
    /// Storage Performance Council text.
    Spc, "spc", Relative;
    /// Alibaba Cloud block traces CSV.
    Alibaba, "alibaba", Unix;
    /// Tencent Cloud block storage CSV.
    Tencent, "tencent", Unix;
    /// ARC `.lis`.
    Arc, "arc", None;
    /// One block number a line, as the LIRS authors use.
    Lirs, "lirs", None;
    /// Little-endian u32 block numbers (the `CloudPhysics` traces of Caffeine).
    RawU32, "raw-u32", None;
    /// Our own CSV with a header.
    Csv, "csv", Unix;
}

impl Format {
    /// True when events have times.
    pub fn has_time(self) -> bool {
        self.time_base() != TimeBase::None
    }

    /// All names, for messages.
    pub(crate) fn known() -> String {
        let names: Vec<_> = Self::ALL.iter().map(|format| format.name()).collect();
        names.join(", ")
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Format {
    type Err = TraceError;

    fn from_str(name: &str) -> Result<Self, TraceError> {
        Self::ALL
            .iter()
            .copied()
            .find(|format| format.name() == name)
            .ok_or_else(|| TraceError::FormatName {
                name: name.to_owned(),
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_leads_back_to_its_format() {
        for &format in Format::ALL {
            assert_eq!(format.name().parse::<Format>().unwrap(), format);
        }
        let message = "vscsi".parse::<Format>().unwrap_err().to_string();
        assert!(message.contains("vscsi1, vscsi2"), "{message}");
    }
}
