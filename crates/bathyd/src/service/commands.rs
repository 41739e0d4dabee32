//! Commands: what is served, and how, changes while it is served.

use std::path::PathBuf;
use std::sync::{Arc, mpsc};

use bathy_cache::Engine;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Service;
use super::question::parse;
use super::sources::SourceInfo;
use crate::config::{self, Mode};
use crate::engine_cache::EngineCache;
use crate::failure::Failure;
use crate::plaintext::{is_encrypted, plaintext_failure};
use crate::starts::{Starting, late, start_apart, without_panic};
use crate::state_files::check_own_place;

impl Service {
    pub(super) fn start_source(self: &Arc<Self>, question: &Value) -> Result<Value, Failure> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Start {
            source: config::Source,
        }
        let Start { source } = parse(question)?;
        self.start(source)?;
        Ok(json!({}))
    }

    pub(super) fn start(self: &Arc<Self>, source: config::Source) -> Result<(), Failure> {
        let alone = self.running()?;
        let mut state = self.lock();
        let mut starting = state.starting.iter().map(|one| &one.source);
        if starting.any(|other| other.dir == source.dir) {
            return Err(late(&source));
        }
        let served = state.served.iter().map(|one| &one.info.source);
        source.check(served.chain(state.starting.iter().map(|one| &one.source)))?;
        // Who has files of it open would change them without the cache that is to serve the others.
        state.draining.retain(|one| !one.mounted.has_ended());
        let draining = state.draining.iter().map(|one| &one.info.source);
        let mut ending = draining.chain(state.leaving.iter().map(|one| &one.info.source));
        if ending.any(|other| other.dir == source.dir || other.name() == source.name()) {
            return Err(Failure::new(
                format!(
                    "{} was stopped and is still in use: files are open or not yet flushed",
                    source.name()
                ),
                r#"close its files; start it when {"query":"status"} does not name it any more"#,
            ));
        }
        state.starts += 1;
        let number = state.starts;
        let known = state.unserved.iter().position(|one| one.name == source.name());
        let failure = known.map(|place| state.unserved.remove(place).failure);
        state.starting.push(Starting {
            failure,
            ..Starting::new(number, &source)
        });
        drop(state);
        drop(alone);
        let (results, served) = mpsc::channel();
        let (service, starting, tell) = (Arc::clone(self), source.clone(), results.clone());
        let start = move || {
            let threads = service.config.threads;
            let serve =
                || (service.claim)(starting.clone(), threads).and_then(|one| service.serve(number, one));
            service.conclude(number, &starting, without_panic(&starting, serve), &tell);
        };
        if let Err(failure) = start_apart(&source, start) {
            self.conclude(number, &source, Err(failure), &results);
        }
        let mut result = Err(late(&source));
        self.wait_for(vec![source], true, &served, |_, told| result = told);
        result
    }

    pub(super) fn stop_source(self: &Arc<Self>, question: &Value) -> Result<Value, Failure> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Stop {
            name: String,
            #[serde(default)]
            force: bool,
        }
        let Stop { name, force } = parse(question)?;
        let is_unused = self.stop(&name, force)?;
        Ok(json!({"is_draining": !is_unused}))
    }

    /// The cache, to change its SSD.
    pub(super) fn to_change(&self) -> Result<Arc<EngineCache>, Failure> {
        self.check_running()?;
        self.lock().cache.clone().ok_or_else(|| {
            Failure::new(
                "the cache is not used: all sources are in the mode \"pass-through\"",
                "it is when a source gets another mode, or at the next start",
            )
        })
    }

    pub(super) fn detach(&self, question: &Value) -> Result<Value, Failure> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Detach {}
        let Detach {} = parse(question)?;
        let is_kept = self.to_change()?.detach()?;
        Ok(json!({"is_content_kept": is_kept}))
    }

    pub(super) fn attach(&self, question: &Value) -> Result<Value, Failure> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Attach {
            ssd: Option<PathBuf>,
            #[serde(default)]
            force: bool,
        }
        let Attach { ssd, force } = parse(question)?;
        if let Some(ssd) = &ssd {
            config::check_path(ssd)?;
            check_own_place(ssd, false)?;
            let sources = self.now().sources;
            let secret = sources
                .iter()
                .find_map(|info| Some((info, info.secret.as_ref()?)));
            if let Some((info, found)) = secret.filter(|_| !is_encrypted(ssd)) {
                return Err(plaintext_failure(&info.source, found, ssd));
            }
        }
        let (ssd, found) = self.to_change()?.attach(ssd.as_deref(), force)?;
        Ok(json!({"ssd": ssd.to_string_lossy(), "found": found}))
    }

    pub(super) fn resize(&self, question: &Value) -> Result<Value, Failure> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Resize {
            size_bytes: u64,
        }
        let Resize { size_bytes } = parse(question)?;
        let capacity_bytes = self.to_change()?.resize(size_bytes)?;
        Ok(json!({"capacity_bytes": capacity_bytes}))
    }

    pub(super) fn set_mode(self: &Arc<Self>, question: &Value) -> Result<Value, Failure> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct SetMode {
            name: String,
            mode: Mode,
        }
        let SetMode { name, mode } = parse(question)?;
        let alone = self.running()?;
        let (place, info) = self.served_as(&name)?;
        let source = config::Source {
            mode,
            ..info.source.clone()
        };
        let Some(cached) = &info.cached else {
            if mode != Mode::PassThrough {
                // The cache knows none of its files: it is served anew, which takes a moment without users.
                drop(alone);
                self.stop(&name, false)?;
                self.start(source)
                    .map_err(|failure| match self.start(info.source.clone()) {
                        Ok(()) => failure,
                        Err(other) => Failure::new(
                            format!("{}; and as it was before: {}", failure.message, other.message),
                            format!("{name} is served no more; start it again: {}", failure.hint),
                        ),
                    })?;
            }
            return Ok(json!({}));
        };
        let (live, uuid) = cached.in_cache();
        live.with_engine(|engine| engine.set_mode(uuid, mode.in_engine()));
        self.lock().served[place].info = Arc::new(SourceInfo {
            source,
            ..(*info).clone()
        });
        Ok(json!({}))
    }

    pub(super) fn set_size(&self, question: &Value) -> Result<Value, Failure> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct SetSize {
            name: String,
            // Required: null is no limit, and a field that is left out by mistake is not.
            #[serde(deserialize_with = "Option::deserialize")]
            size_bytes: Option<u64>,
        }
        let SetSize { name, size_bytes } = parse(question)?;
        let _alone = self.running()?;
        let (place, info) = self.served_as(&name)?;
        if let Some((live, uuid)) = info.cached.as_ref().map(|cached| cached.in_cache()) {
            live.with_engine(|engine| {
                check_size(engine, size_bytes)?;
                engine.set_size(uuid, size_bytes);
                Ok::<(), Failure>(())
            })?;
        }
        self.lock().served[place].info = Arc::new(SourceInfo {
            source: config::Source {
                size_bytes,
                ..info.source.clone()
            },
            ..(*info).clone()
        });
        Ok(json!({}))
    }
}

/// Whether a limit leaves a source room to be cached in.
pub(super) fn check_size(engine: &Engine, size_bytes: Option<u64>) -> Result<(), Failure> {
    // Without an SSD the parts of the cache are not known.
    let least = if engine.is_bypassed() {
        0
    } else {
        engine.size_bytes_min()
    };
    match size_bytes {
        Some(bytes) if bytes < least => Err(Failure::new(
            format!("size_bytes must be at least {least}, a line in each part of the cache (got {bytes})"),
            "leave it out for no limit; the mode \"pass-through\" caches nothing",
        )),
        _ => Ok(()),
    }
}
