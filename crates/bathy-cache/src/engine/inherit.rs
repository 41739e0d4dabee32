//! An engine goes on where another one ended, in the same process: what was counted, and what was set for sources.

use std::collections::HashMap;
use std::sync::Arc;

use crate::curve::OnlineCurve;
use crate::engine::Engine;
use crate::format::Uuid;
use crate::index::source::Source;
use crate::stats::Closed;
use crate::stats::counters::{Counts, OpCounts};
use crate::store::ssd::SsdCounts;
use crate::sync::Mutex;
use crate::sync::lock;

/// What the engine of one SSD leaves to the next.
pub(crate) struct Inheritance {
    /// Names the content: keys mean other lines in another one.
    pub(crate) content: (Uuid, u64),
    counts: Counts,
    ssd_counts: Arc<SsdCounts>,
    curve: Arc<OnlineCurve>,
    sources: Vec<(Uuid, Arc<Source>, Option<u64>)>,
    closed: Arc<Mutex<Closed>>,
}

impl Engine {
    /// What the next engine goes on with. What is counted later is lost to it, apart from requests of sources and from what
    /// the stop writes to the SSD.
    pub(crate) fn legacy(&self) -> Inheritance {
        let files = lock(&self.files);
        let sources = files.sources.iter().map(|(uuid, source)| {
            let limit_lines = self.residency.limit(source.number);
            let limit_bytes = limit_lines.map(|lines| lines * self.line_bytes);
            (*uuid, Arc::clone(source), limit_bytes)
        });
        let (sources, closed) = (sources.collect(), Arc::clone(&files.closed));
        drop(files);
        Inheritance {
            content: self.content(),
            counts: Counts {
                // Those of sources are kept by the sources.
                reads: OpCounts::default(),
                writes: OpCounts::default(),
                ..self.counts()
            },
            ssd_counts: Arc::clone(&self.ssd.counts()),
            curve: Arc::clone(&self.curve),
            sources,
            closed,
        }
    }

    /// To be called before the first file is attached.
    pub(crate) fn inherit(&mut self, from: &Inheritance) {
        self.inherited = from.counts;
        self.ssd.count_in(&from.ssd_counts);
        if self.content() == from.content {
            self.curve = Arc::clone(&from.curve);
            self.let_curve_go_on(&self.curve, None);
        } else {
            // Their numbers are those of other files now.
            lock(&from.closed).forget_numbers();
        }
        self.take_sources(from);
    }

    /// Goes on with modes, limits and counts of sources and closed files.
    fn take_sources(&self, from: &Inheritance) {
        {
            let is_content_same = self.content() == from.content;
            let mut files = lock(&self.files);
            files.closed = Arc::clone(&from.closed);
            for (uuid, source, _) in &from.sources {
                let here = files.source(uuid);
                // Keys mean other lines in another content.
                let curve = if is_content_same {
                    &source.curve
                } else {
                    &here.curve
                };
                let source = Arc::new(source.numbered(here.number, curve));
                files.sources.insert(*uuid, source);
            }
        }
        let limits: HashMap<_, _> = from
            .sources
            .iter()
            .map(|(uuid, _, limit)| (uuid, *limit))
            .collect();
        for (uuid, limit_bytes) in limits {
            self.set_size(uuid, limit_bytes);
        }
    }

    /// The cache and the generation of its content.
    pub(crate) fn content(&self) -> (Uuid, u64) {
        (lock(&self.superblock).uuid, self.generation)
    }
}
