//! The start: each source has its own, and all have one cache.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use bathy_cache::{GenerationFile, void};

use super::claimed::{ClaimSource, ClaimedSource, claim_source};
use super::sources::Unserved;
use super::{Service, State, cannot_note};
use crate::config::{self, Config, Mode};
use crate::failure::Failure;
use crate::session::Session;
use crate::starts::{
    StartNumber, Starting, Told, late, start_apart, take_told, wait_for_starts, without_panic,
};
use crate::state_files::generation_path;

/// A source that is about to be served.
struct Start {
    number: StartNumber,
    source: config::Source,
    results: Sender<Told<()>>,
}

impl Start {
    /// Claims the source, says whether nobody has used it since the last session, and serves it when the cache is open.
    fn claim_and_serve(
        self,
        claim: ClaimSource,
        threads: usize,
        claims: &Sender<Told<bool>>,
        opened: &Receiver<Arc<Service>>,
    ) {
        let source = &self.source;
        let claimed = without_panic(source, || claim(source.clone(), threads));
        let fence = |one: &ClaimedSource| one.claim.had_dead_mount() || source.mode == Mode::PassThrough;
        let said = claimed.as_ref().map(fence).map_err(Clone::clone);
        let _nobody_waits = claims.send((source.dir.clone(), said));
        // Else there is nothing to be served.
        if let Ok(service) = opened.recv() {
            let serve = || claimed.and_then(|claimed| service.serve(self.number, claimed));
            service.conclude(self.number, source, without_panic(source, serve), &self.results);
        }
    }
}

impl Service {
    /// Serves the sources of a configuration. Those that cannot be served are named in the log and in the status: the disk
    /// of one must not keep the others from being served.
    ///
    /// # Errors
    /// If there are sources and none of them can be served.
    pub(crate) fn begin(config: Config) -> Result<Arc<Self>, Failure> {
        Self::begin_with(config, claim_source)
    }

    pub(super) fn begin_with(config: Config, claim: ClaimSource) -> Result<Arc<Self>, Failure> {
        let limit = Duration::from_secs(config.start_limit_s);
        let (claims, claimed) = mpsc::channel();
        let (results, served) = mpsc::channel();
        let (mut gates, mut starting, mut refused) = (Vec::new(), Vec::new(), Vec::new());
        for (number, source) in config.sources.iter().enumerate() {
            if let Err(failure) = source.check(config.sources[..number].iter()) {
                refused.push(Unserved::new(source, failure));
                continue;
            }
            let (gate, opened) = mpsc::channel();
            let start = Start {
                number: starting.len(),
                source: source.clone(),
                results: results.clone(),
            };
            let (claims, threads) = (claims.clone(), config.threads);
            let begun = start_apart(source, move || {
                start.claim_and_serve(claim, threads, &claims, &opened);
            });
            if let Err(failure) = begun {
                refused.push(Unserved::new(source, failure));
                continue;
            }
            gates.push(gate);
            starting.push(source.clone());
        }
        drop((claims, results));
        let (mut fences, mut failed) = (Vec::new(), Vec::new());
        wait_for_starts(
            &mut starting.clone(),
            limit,
            false,
            &claimed,
            &mut |_, claim| match claim {
                Ok(fence) => fences.push(fence),
                Err(failure) => failed.push(failure),
            },
        );
        refused.extend(
            config
                .unread
                .iter()
                .map(|entry| Unserved::unread(entry, &config.path)),
        );
        if fences.is_empty() {
            // None of them is late: one would have been waited for.
            failed.extend(refused.iter().map(|unserved| unserved.failure.clone()));
            if !failed.is_empty() {
                return Err(failed.swap_remove(0));
            }
        }
        let session = Session::begin(&config.state).map_err(|error| cannot_note(&error))?;
        let service = Arc::new(Self {
            began: Instant::now(),
            changing: Mutex::new(()),
            session: Mutex::new(session),
            writing: Mutex::new(()),
            state: Mutex::new(State {
                cache: None,
                served: Vec::new(),
                draining: Vec::new(),
                leaving: Vec::new(),
                has_ended: false,
                starting: (starting.iter().enumerate())
                    .map(|(number, source)| Starting::new(number, source))
                    .collect(),
                starts: starting.len(),
                unserved: refused,
            }),
            is_stopping: AtomicBool::new(false),
            is_unsound: AtomicBool::new(false),
            config,
            claim,
        });
        let is_cached = |source: &config::Source| source.mode != Mode::PassThrough;
        let sources = &service.config.sources;
        // A source whose disk is away for now must find its lines when it is there again.
        if sources.is_empty() || !service.config.unread.is_empty() || sources.iter().any(is_cached) {
            service.open_cache(fences.into_iter().all(|is_fenced| is_fenced))?;
        } else {
            let generations = GenerationFile::new(generation_path(&service.config.state));
            void(&generations).map_err(|error| cannot_note(&error))?;
        }
        for gate in gates {
            let _waits = gate.send(Arc::clone(&service));
        }
        service.wait_for(starting, false, &served, |source, result| {
            let failed = result.err().map(|failure| Unserved::new(&source, failure));
            service.lock().unserved.extend(failed);
        });
        let mut state = service.lock();
        // Whoever was first: as the configuration names them.
        let place_of = |name: &str| {
            let mut names = service.config.sources.iter().map(config::Source::name);
            names.position(|other| other == name).unwrap_or(usize::MAX)
        };
        state.served.sort_by_key(|one| place_of(&one.info.source.name()));
        state.unserved.sort_by_key(|one| place_of(&one.name));
        let failure = state.unserved.first().map(|unserved| unserved.failure.clone());
        if let Some(failure) = failure.filter(|_| state.served.is_empty()) {
            drop(state);
            service.is_stopping.store(true, Ordering::Release);
            service.end()?;
            return Err(failure);
        }
        state.unserved().iter().for_each(Unserved::log);
        drop(state);
        Ok(service)
    }

    /// Waits for starts (see [`wait_for_starts`]), and no more for those of which nothing was told by then: each is served as
    /// soon as its disk answers.
    pub(super) fn wait_for(
        &self,
        mut pending: Vec<config::Source>,
        has_one: bool,
        told: &Receiver<Told<()>>,
        mut take: impl FnMut(config::Source, Result<(), Failure>),
    ) {
        let limit = Duration::from_secs(self.config.start_limit_s);
        wait_for_starts(&mut pending, limit, has_one, told, &mut take);
        let mut state = self.lock();
        for one in &mut state.starting {
            if pending.iter().any(|source| source.dir == one.source.dir) {
                (one.is_late, one.failure) = (true, Some(late(&one.source)));
            }
        }
        drop(state);
        // Who was ready before it counted as late has told it.
        take_told(&mut pending, told.try_iter(), &mut take);
    }

    /// A source is served, or is not: whoever waits is told so, and else the log.
    pub(super) fn conclude(
        &self,
        number: StartNumber,
        source: &config::Source,
        result: Result<(), Failure>,
        results: &Sender<Told<()>>,
    ) {
        let mut state = self.lock();
        let place = state.starting.iter().position(|one| one.number == number);
        let starting = place.map(|place| state.starting.remove(place));
        if let (
            Some(Starting {
                failure: Some(_),
                is_late,
                ..
            }),
            Err(failure),
        ) = (starting, &result)
        {
            let unserved = Unserved::new(source, failure.clone());
            if is_late {
                unserved.log();
            }
            state.unserved.push(unserved);
        }
        let _nobody_waits = results.send((source.dir.clone(), result));
    }
}
