//! The sources that are served, and what is asked and told of them while they are.

mod begin;
mod claimed;
mod commands;
mod question;
mod questions;
mod serve;
mod sources;
mod stop;

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use bathy_cache::Options;

use crate::config::{AfterUnclean, Config};
use crate::engine_cache::{EngineCache, EngineCacheOptions};
use crate::failure::Failure;
use crate::panics::perhaps;
use crate::random::random;
use crate::session::Session;
use crate::starts::{StartNumber, Starting};
use crate::state_files::generation_path;
use claimed::ClaimSource;
use sources::{Leaving, ServedDirectory, SourceInfo, Unserved};

/// What there is at one moment.
struct Snapshot {
    cache: Option<Arc<EngineCache>>,
    /// Those that are served, and those that are left but for open files.
    sources: Vec<Arc<SourceInfo>>,
    unserved: Vec<Unserved>,
}

/// What is served changes while [`Service::changing`] is locked.
struct State {
    /// Opened when the first source needs it.
    cache: Option<Arc<EngineCache>>,
    served: Vec<ServedDirectory>,
    /// Unmounted by force: they are served to those who have files of them open.
    draining: Vec<ServedDirectory>,
    /// Unmounted, and the cache is about to take note of it.
    leaving: Vec<Leaving>,
    /// The last one that was served ended by itself: somebody else unmounted it.
    has_ended: bool,
    /// Those that are about to be served, each by a thread of its own. One that is taken away from here is not.
    starting: Vec<Starting>,
    starts: StartNumber,
    /// A command can start them later.
    unserved: Vec<Unserved>,
}

impl State {
    /// Those that are not served, and those of which somebody waits no more for their start.
    fn unserved(&self) -> Vec<Unserved> {
        let starting = self.starting.iter();
        let starting = starting.filter_map(|one| Some(Unserved::new(&one.source, one.failure.clone()?)));
        self.unserved.iter().cloned().chain(starting).collect()
    }
}

/// See the [module](self).
pub(crate) struct Service {
    config: Config,
    claim: ClaimSource,
    began: Instant,
    /// Locked by who changes which sources are served, and how: before the state.
    changing: Mutex<()>,
    /// Locked for moments, and never while a disk or a switch is waited for, but for the unmount of a source: these must keep
    /// nobody from a question.
    state: Mutex<State>,
    /// Locked while it is written, which no question waits for. Nothing else is locked with it.
    session: Mutex<Session>,
    /// Locked by who changes the configuration's file.
    writing: Mutex<()>,
    is_stopping: AtomicBool,
    /// What others may have changed could not be kept from being believed: the stop must not be a clean one.
    is_unsound: AtomicBool,
}

fn cannot_note(error: &io::Error) -> Failure {
    Failure::new(
        format!("the state directory: {error}"),
        "the system refuses what bathyd needs",
    )
}

impl Service {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn session(&self) -> MutexGuard<'_, Session> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for who changes sources. Nobody else does until the guard is dropped.
    fn change(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open_cache(&self, was_fenced: bool) -> Result<Arc<EngineCache>, Failure> {
        let state = self.lock();
        if let Some(cache) = &state.cache {
            return Ok(Arc::clone(cache));
        }
        self.check_running()?;
        drop(state);
        let was_clean = self.session().was_clean();
        let is_strict = self.config.cache.after_unclean == AfterUnclean::Cold;
        let options = EngineCacheOptions {
            name: self.config.cache.name.clone(),
            ssd: self.config.cache.ssd.clone(),
            generations: generation_path(&self.config.state),
            is_detached: self.config.cache.is_detached,
            was_clean,
            has_device_stamps: is_strict,
            policy: self.config.cache.policy,
            line: self.config.cache.line_bytes,
            engine: Options {
                admission: self.config.cache.admission.options(),
                // Nobody was kept out after a clean stop.
                was_fenced: !was_clean && (was_fenced || !is_strict),
                memory: self.config.memory(),
                sample_seed: random().map_or(0, u64::from_le_bytes),
                ..self.config.cache.fetch.options()
            },
        };
        let cache = Arc::new(EngineCache::open(options).map_err(|error| cannot_note(&error))?);
        Ok(Arc::clone(self.lock().cache.insert(cache)))
    }

    /// The number of sources that are served.
    pub(crate) fn served(&self) -> usize {
        self.lock().served.len()
    }

    /// To be called every few seconds.
    pub(crate) fn tidy(&self) {
        let Snapshot {
            cache: Some(cache),
            sources,
            ..
        } = self.now()
        else {
            return;
        };
        cache.tidy(move |uuid, tidy| {
            let is_it = |info: &&Arc<SourceInfo>| {
                let cached = info.cached.as_ref();
                cached.is_some_and(|cached| cached.in_cache().1 == uuid)
            };
            // What was left is nobody's any more.
            let Some(info) = sources.iter().find(is_it) else {
                return tidy();
            };
            let _distrusted = info.containment.contain(|| {
                perhaps("tidy", &info.source.dir);
                tidy();
                Ok(())
            });
        });
    }

    fn now(&self) -> Snapshot {
        let state = self.lock();
        let draining = state.draining.iter().map(|one| {
            Arc::new(SourceInfo {
                is_served: false,
                ..(*one.info).clone()
            })
        });
        let served = state.served.iter().map(|one| Arc::clone(&one.info));
        Snapshot {
            cache: state.cache.clone(),
            sources: served.chain(draining).collect(),
            unserved: state.unserved(),
        }
    }

    /// [`Service::change`], unless all is about to end.
    fn running(&self) -> Result<MutexGuard<'_, ()>, Failure> {
        let alone = self.change();
        self.check_running()?;
        Ok(alone)
    }

    fn check_running(&self) -> Result<(), Failure> {
        if self.is_stopping.load(Ordering::Acquire) {
            return Err(Failure::new("bathyd is stopping", "start it again"));
        }
        Ok(())
    }

    /// A source that is served, and its place among these for as long as nobody changes them.
    fn served_as(&self, name: &str) -> Result<(usize, Arc<SourceInfo>), Failure> {
        let state = self.lock();
        let place = place_of(&state, name)?;
        Ok((place, Arc::clone(&state.served[place].info)))
    }
}

fn place_of(state: &State, name: &str) -> Result<usize, Failure> {
    let place = state.served.iter().position(|one| one.info.source.name() == name);
    place.ok_or_else(|| unknown_source(name))
}

fn unknown_source(name: &str) -> Failure {
    Failure::new(
        format!("no source {name:?} is served"),
        r#"{"query":"status"} names those that are"#,
    )
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::unix::fs::DirBuilderExt;
    use std::path::PathBuf;
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use bathy_cache::DetachError;
    use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
    use serde_json::{Value, json};

    use super::claimed::claim_source;
    use super::*;
    use crate::device::run_create;
    use crate::directory::tests::is_skipped;
    use crate::panics::{ON_PURPOSE, caught, is_on_purpose};

    /// A directory for a service, with the directories `good` and `bad`; `None` where nothing can be mounted.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Option<Self> {
            if is_skipped() {
                return None;
            }
            let scratch = Self(std::env::temp_dir().join(format!("bathyd-{name}-{}", std::process::id())));
            for part in ["good", "bad", "state"] {
                // Others of this process have set the mask that modes are made with.
                let modes = &mut fs::DirBuilder::new();
                let made = modes.recursive(true).mode(0o700).create(scratch.0.join(part));
                made.expect("a directory");
                fs::write(scratch.0.join(part).join("file"), part).expect("written");
            }
            let ssd = File::create(scratch.0.join("ssd")).expect("an SSD");
            ssd.set_len(16 << 20).expect("a size");
            fs::write(scratch.0.join("config"), scratch.config().to_string()).expect("written");
            let created = run_create(&[scratch.0.join("config").to_string_lossy().into_owned()]);
            created.expect("it is empty");
            Some(scratch)
        }

        fn source(&self, name: &str) -> Value {
            json!({"dir": self.0.join(name), "mode": "write-through"})
        }

        fn config(&self) -> Value {
            json!({
                "socket": self.0.join("socket"),
                "state": self.0.join("state"),
                "cache": {"ssd": self.0.join("ssd")},
                "sources": [self.source("bad"), self.source("good")],
                "transport": "dev",
                "threads": 2,
            })
        }

        fn begin(&self, claim: ClaimSource) -> Arc<Service> {
            let config = Config::load(&self.0.join("config")).expect("it is understood");
            Service::begin_with(config, claim).expect("a source can be served")
        }

        fn read(&self, name: &str) -> String {
            fs::read_to_string(self.0.join(name).join("file")).expect("served")
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _left = fs::remove_dir_all(&self.0);
        }
    }

    fn source_of(service: &Service, name: &str) -> Value {
        let status = service.status();
        let sources = status["sources"].as_array().expect("sources");
        let found = sources.iter().find(|source| source["name"] == name);
        found.cloned().unwrap_or_default()
    }

    fn end(service: Arc<Service>) {
        service.unmount_all();
        while !service.reap() {
            thread::sleep(Duration::from_millis(5));
        }
        service.end().expect("it is stopped");
        // Nobody else holds it, and so its SSD.
        assert!(Arc::into_inner(service).is_some());
    }

    #[test]
    fn a_panic_in_the_start_of_a_source_is_its_problem_and_no_other_s() {
        let Some(scratch) = Scratch::new("start") else {
            return;
        };
        let service = scratch.begin(|source, threads| {
            assert_ne!(source.name(), "bad", "on purpose");
            claim_source(source, threads)
        });
        let of_bad = source_of(&service, "bad");
        assert_eq!(of_bad["is_served"], false);
        let problem = of_bad["problem"].as_str().expect("a text");
        assert!(problem.contains("panicked"), "{problem}");
        assert_eq!(source_of(&service, "good")["is_served"], true);
        assert_eq!(scratch.read("good"), "good");
        let command = json!({"command": "start_source", "source": scratch.source("bad")});
        let again = service.answer(&command).expect("it is known");
        assert!(again.is_err_and(|failure| failure.message.contains("panicked")));
        assert_eq!(source_of(&service, "bad"), of_bad);
        end(service);
    }

    #[test]
    fn a_source_below_which_another_daemon_mounts_after_its_claim_is_not_served() {
        for is_late in [false, true] {
            let Some(scratch) = Scratch::new("nested") else {
                return;
            };
            let bad = scratch.0.join("bad");
            let below = bad.join("below");
            fs::create_dir(&below).expect("made");
            if is_late {
                // As if it came after the look right before the source is mounted.
                fails_at("find mounts below", bad.clone());
            }
            let service = scratch.begin(|source, threads| {
                let claimed = claim_source(source, threads)?;
                if claimed.source.name() == "bad" {
                    let below = claimed.source.dir.join("below");
                    mount("none", below, "tmpfs", MountFlags::empty(), None).expect("mounted");
                }
                Ok(claimed)
            });
            let of_bad = source_of(&service, "bad");
            unmount(&below, UnmountFlags::empty()).expect("its path leads to it");
            assert_eq!(of_bad["is_served"], false);
            let problem = of_bad["problem"].as_str().expect("a text");
            assert!(problem.contains("mounted below it"), "{problem}");
            assert!(!is_mounted(&bad) && service.lock().leaving.is_empty());
            assert!(!is_on_purpose("find mounts below", &bad), "it was looked");
            assert_eq!(scratch.read("good"), "good");
            end(service);
        }
    }

    #[test]
    fn what_users_did_in_a_source_before_it_was_refused_is_not_believed_later() {
        let Some(scratch) = Scratch::new("withdrawn") else {
            return;
        };
        let service = scratch.begin(claim_source);
        let file = scratch.0.join("bad/file");
        fs::write(&file, "old").expect("served");
        assert_eq!(scratch.read("bad"), "old");
        let alone = service.change();
        let place = place_of(&service.lock(), "bad").expect("it is served");
        let one = service.lock().served.remove(place);
        service.withdraw(alone, one).expect("the cache works");
        assert!(service.lock().leaving.is_empty() && !is_mounted(&scratch.0.join("bad")));
        fs::write(&file, "new").expect("written");
        let command = json!({"command": "start_source", "source": scratch.source("bad")});
        let started = service.answer(&command).expect("it is known");
        started.expect("nothing is in its way");
        assert_eq!(scratch.read("bad"), "new");
        end(service);
    }

    #[test]
    fn a_source_for_which_there_is_no_thread_is_not_served_and_the_others_are() {
        let Some(scratch) = Scratch::new("thread") else {
            return;
        };
        fails_at("no thread", scratch.0.join("bad"));
        let service = scratch.begin(claim_source);
        let of_bad = source_of(&service, "bad");
        assert_eq!(of_bad["is_served"], false);
        let problem = of_bad["problem"].as_str().expect("a text");
        assert!(problem.contains("a thread: "), "{problem}");
        assert_eq!(scratch.read("good"), "good");
        let command = json!({"command": "start_source", "source": scratch.source("bad")});
        let again = service.answer(&command).expect("it is known");
        again.expect("there is a thread now");
        assert_eq!(scratch.read("bad"), "bad");
        end(service);
    }

    #[test]
    fn a_source_of_which_a_request_panicked_is_served_without_the_cache_until_it_is_started_anew() {
        let Some(scratch) = Scratch::new("distrust") else {
            return;
        };
        let service = scratch.begin(claim_source);
        let hits = |name: &str| {
            let before = source_of(&service, name)["stats"]["reads"]["requests_hit"].as_u64();
            assert_eq!(scratch.read(name), name);
            let after = source_of(&service, name)["stats"]["reads"]["requests_hit"].as_u64();
            after.expect("counted") - before.expect("counted")
        };
        for name in ["good", "bad"] {
            hits(name);
            assert_eq!(hits(name), 1);
        }
        let containment = {
            let state = service.lock();
            let of_bad = place_of(&state, "bad").expect("it is served");
            Arc::clone(&state.served[of_bad].info.containment)
        };
        let failed = containment.contain(|| -> io::Result<()> { panic!("on purpose") });
        assert_eq!(failed.expect_err("it panicked").raw_os_error(), Some(libc::EIO));
        drop(containment);
        let of_bad = source_of(&service, "bad");
        assert_eq!(of_bad["is_served"], true);
        let problem = of_bad["problem"].as_str().expect("a text");
        assert!(problem.contains("panicked"), "{problem}");
        assert_eq!(of_bad["usage"]["cached_bytes"], 0);
        let tell = |command: &str, with: Value| {
            let mut question = with;
            question["command"] = json!(command);
            service
                .answer(&question)
                .expect("it is known")
                .expect("it is done")
        };
        // It stays so, whatever its mode.
        tell("set_mode", json!({"name": "bad", "mode": "write-around"}));
        assert_eq!((hits("bad"), hits("bad"), hits("good")), (0, 0, 1));
        assert!(source_of(&service, "good")["problem"].is_null());
        tell("stop_source", json!({"name": "bad"}));
        tell("start_source", json!({"source": scratch.source("bad")}));
        assert!(source_of(&service, "bad")["problem"].is_null());
        assert_eq!((hits("bad"), hits("bad")), (0, 1));
        end(service);
        // The stop was a clean one.
        let service = scratch.begin(claim_source);
        assert!(
            service.status()["cache"]["found"]
                .as_str()
                .is_some_and(|found| found.starts_with("clean"))
        );
        end(service);
    }

    /// What is done for a directory or a state panics or fails the next time.
    fn fails_at(what: &'static str, of: PathBuf) {
        let mut all = ON_PURPOSE.lock().unwrap_or_else(PoisonError::into_inner);
        all.push((what, of));
    }

    fn wait_until(mut happens: impl FnMut() -> bool) {
        let began = Instant::now();
        while !happens() {
            assert!(began.elapsed() < Duration::from_secs(60), "it does not happen");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Reads the file of a source: whether the cache served that.
    fn is_hit(service: &Service, scratch: &Scratch, name: &str) -> bool {
        let hits = || source_of(service, name)["stats"]["reads"]["requests_hit"].as_u64();
        let before = hits();
        assert_eq!(scratch.read(name), name);
        hits() > before
    }

    fn has_panicked(service: &Service, name: &str) -> bool {
        let problem = &source_of(service, name)["problem"];
        problem.as_str().is_some_and(|text| text.contains("panicked"))
    }

    fn is_mounted(dir: &std::path::Path) -> bool {
        let mounts = fs::read_to_string("/proc/self/mountinfo").expect("proc is mounted");
        mounts.contains(&*dir.to_string_lossy())
    }

    #[test]
    fn a_comparison_that_panics_ends_the_use_of_its_source_in_the_cache_and_of_no_other() {
        let Some(scratch) = Scratch::new("compare") else {
            return;
        };
        fails_at("compare", scratch.0.join("bad"));
        let service = scratch.begin(claim_source);
        wait_until(|| has_panicked(&service, "bad"));
        for name in ["good", "bad"] {
            is_hit(&service, &scratch, name);
        }
        assert!(is_hit(&service, &scratch, "good") && !has_panicked(&service, "good"));
        assert!(!is_hit(&service, &scratch, "bad"));
        end(service);
    }

    #[test]
    fn a_source_whose_tidying_panics_is_distrusted_and_the_others_are_tidied() {
        let Some(scratch) = Scratch::new("tidied") else {
            return;
        };
        let service = scratch.begin(claim_source);
        fails_at("tidy", scratch.0.join("bad"));
        for name in ["good", "bad"] {
            fs::write(scratch.0.join(name).join("file"), name).expect("written");
        }
        let marked = || service.status()["cache"]["engine"]["marked_regions"].as_u64();
        assert!(marked() > Some(0));
        (0..3).for_each(|_| service.tidy());
        assert!(has_panicked(&service, "bad") && !has_panicked(&service, "good"));
        assert_eq!(marked(), Some(0));
        end(service);
    }

    #[test]
    fn a_source_whose_end_panics_is_cold_the_next_time_and_the_others_are_warm() {
        for what in ["settle", "leave"] {
            let Some(scratch) = Scratch::new(what) else {
                return;
            };
            let service = scratch.begin(claim_source);
            for name in ["good", "bad"] {
                is_hit(&service, &scratch, name);
                assert!(is_hit(&service, &scratch, name));
            }
            fails_at(what, scratch.0.join("bad"));
            let stop = json!({"command": "stop_source", "name": "bad"});
            service
                .answer(&stop)
                .expect("it is known")
                .expect("it is stopped");
            end(service);
            let service = scratch.begin(claim_source);
            let found = service.status()["cache"]["found"].clone();
            let is_clean = found.as_str().is_some_and(|found| found.starts_with("clean"));
            assert!(is_clean, "{what}: {found}");
            assert!(is_hit(&service, &scratch, "good"), "{what}");
            assert!(!is_hit(&service, &scratch, "bad"), "{what}");
            end(service);
        }
    }

    #[test]
    fn a_panic_while_all_is_tidied_gives_the_ssd_up_and_one_while_it_is_attached_keeps_no_later_command_out()
    {
        let Some(scratch) = Scratch::new("tidy") else {
            return;
        };
        let service = scratch.begin(claim_source);
        let state = || service.status()["cache"]["attachment"]["state"].clone();
        let generations = generation_path(&scratch.0.join("state"));
        fails_at("tidy", generations.clone());
        service.tidy();
        wait_until(|| state() == "waiting");
        assert!(!is_hit(&service, &scratch, "good"));
        assert!(!is_hit(&service, &scratch, "good"));
        let attach = json!({"command": "attach"});
        let attached = || caught(|| service.answer(&attach).expect("it is known"));
        fails_at("take", generations);
        // The thread that left the SSD may have to let go of it.
        wait_until(|| attached().is_none());
        assert_eq!(state(), "waiting");
        attached().expect("no panic").expect("it is attached");
        is_hit(&service, &scratch, "good");
        assert!(is_hit(&service, &scratch, "good"));
        service.tidy();
        assert_eq!(state(), "attached");
        end(service);
    }

    #[test]
    fn who_keeps_the_ssd_from_being_left_is_named() {
        let Some(scratch) = Scratch::new("named") else {
            return;
        };
        let service = scratch.begin(claim_source);
        let Snapshot { cache, sources, .. } = service.now();
        let uuid_of = |name: &str| {
            let of_name = sources.iter().find(|info| info.source.name() == name);
            let cached = of_name.and_then(|info| info.cached.as_ref());
            *cached.expect("it is cached").in_cache().1
        };
        let cache = cache.expect("it is open");
        let named = cache.shown(&DetachError::Busy(vec![uuid_of("bad")]));
        let bad = scratch.0.join("bad");
        let expected = format!("the disk of {} does not answer", bad.display());
        assert!(named.ends_with(&expected), "{named}");
        drop((cache, sources));
        end(service);
    }

    #[test]
    fn a_source_whose_unmount_panics_keeps_no_other_mounted() {
        let Some(scratch) = Scratch::new("unmount") else {
            return;
        };
        let service = scratch.begin(claim_source);
        fails_at("unmount", scratch.0.join("bad"));
        service.unmount_all();
        assert!(!is_mounted(&scratch.0.join("good")));
        assert!(is_mounted(&scratch.0.join("bad")));
        assert_eq!(scratch.read("bad"), "bad");
        end(service);
    }

    #[test]
    fn when_no_signal_is_heard_any_more_all_is_unmounted() {
        let Some(scratch) = Scratch::new("deaf") else {
            return;
        };
        let service = scratch.begin(claim_source);
        assert!(is_mounted(&scratch.0.join("good")));
        let (signals, wakeups) = mpsc::channel();
        drop(signals);
        let (done, is_done) = mpsc::channel();
        let served = Arc::clone(&service);
        thread::spawn(move || {
            crate::daemon::wait(&wakeups, &served);
            drop(served);
            done.send(())
        });
        is_done.recv_timeout(Duration::from_secs(60)).expect("it ends");
        assert!(!is_mounted(&scratch.0.join("good")) && !is_mounted(&scratch.0.join("bad")));
        end(service);
    }
}
