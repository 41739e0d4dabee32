//! RBD images as a target: librbd completes requests on threads of its own, which stamp the time and queue them.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bathy_ceph::{Access, Cluster, ClusterOptions, Error, Image, Layout, Operation};

use crate::deadline::within;
use crate::failure::Failure;
use crate::plan::{Direction, RbdPlan};
use crate::requests::Request;
use crate::world::{Done, Memory, World};

/// Open images, and what they have completed.
pub struct Rbd {
    images: Vec<Image>,
    layouts: Vec<Layout>,
    queue: Arc<Queue>,
    limit: Duration,
}

struct Queue {
    start: Instant,
    state: Mutex<State>,
    arrived: Condvar,
}

#[derive(Default)]
struct State {
    done: Vec<Done>,
    /// The submitting thread sleeps until there is anything.
    is_awaited: bool,
}

impl Queue {
    fn now_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, done: Done) {
        let mut state = self.state();
        state.done.push(done);
        let wakes = std::mem::take(&mut state.is_awaited);
        drop(state);
        if wakes {
            self.arrived.notify_one();
        }
    }
}

struct Sent {
    slot: u32,
    memory: Memory,
    queue: Arc<Queue>,
}

impl Operation for Sent {
    fn data(&self) -> &[u8] {
        self.memory.data()
    }

    fn memory(&mut self) -> &mut [u8] {
        self.memory.memory()
    }

    fn completed(self: Box<Self>, result: Result<(), i32>) {
        let at_ns = self.queue.now_ns();
        let Self { slot, memory, queue } = *self;
        queue.push(Done {
            slot,
            at_ns,
            result,
            memory,
        });
    }
}

impl Rbd {
    /// Connect to the cluster and open the images of a plan.
    ///
    /// # Errors
    /// If something of it is missing, not allowed, or takes too long; then a thread may be left behind.
    pub fn open(plan: &RbdPlan, writes: bool, in_flight_max: u64) -> Result<Self, Failure> {
        let limit = Duration::from_secs(plan.connect_timeout_s.into());
        let access = if writes {
            Access::ReadWrite
        } else {
            Access::ReadOnly
        };
        // librados lets a call that submits wait while so many operations are in flight. A request may be several.
        let operations = in_flight_max * 64;
        let mut options = vec![
            ("rbd_cache".to_owned(), "false".to_owned()),
            // What librados says besides its errors.
            ("err_to_stderr".to_owned(), "false".to_owned()),
            ("objecter_inflight_ops".to_owned(), operations.to_string()),
            ("objecter_inflight_op_bytes".to_owned(), (1_u64 << 40).to_string()),
            // What it fails may be carried out all the same.
            ("rados_osd_op_timeout".to_owned(), "0".to_owned()),
            // The submitter would wait for the image's own queue.
            ("rbd_non_blocking_aio".to_owned(), "true".to_owned()),
        ];
        if !writes {
            // What only reads changes nothing, not even the time of the last read.
            options.push(("rbd_atime_update_interval".to_owned(), "0".to_owned()));
        }
        options.extend(
            plan.options
                .iter()
                .map(|(name, value)| (name.clone(), value.clone())),
        );
        let about = plan.clone();
        // Its own limit comes first and says more.
        let connect_limit = limit + Duration::from_secs(2);
        let connected = within(connect_limit, move || {
            let cluster = Cluster::connect(&ClusterOptions {
                conf: about.conf.as_deref(),
                client: &about.client,
                keyring: about.keyring.as_deref(),
                timeout_s: about.connect_timeout_s,
                options: &options,
            })?;
            cluster.pool(&about.pool, &about.namespace)
        });
        let pool = connected.ok_or_else(|| {
            too_late(
                "the cluster did not answer",
                limit,
                "ceph -s shows whether monitors answer",
            )
        })??;
        let names = plan.images.clone();
        let opened = within(limit, move || {
            let images = names.iter().map(|name| Image::open(&pool, name, access));
            let images = images.collect::<Result<Vec<_>, _>>()?;
            let layouts = images.iter().map(Image::layout).collect::<Result<Vec<_>, _>>()?;
            Ok::<_, Error>((images, layouts))
        });
        let (images, layouts) = opened.ok_or_else(|| {
            let hint = "ceph -s shows whether the placement groups of the pool are active";
            too_late("the images could not be opened", limit, hint)
        })??;
        let queue = Queue {
            start: Instant::now(),
            state: Mutex::default(),
            arrived: Condvar::new(),
        };
        Ok(Self {
            images,
            layouts,
            queue: Arc::new(queue),
            limit,
        })
    }

    /// The sizes of the images.
    pub fn sizes(&self) -> Vec<u64> {
        self.layouts.iter().map(|layout| layout.size_bytes).collect()
    }

    /// Close the images and leave the cluster. False: it takes too long, and a thread is left behind.
    pub fn close(self) -> bool {
        let Self { images, limit, .. } = self;
        within(limit, move || drop(images)).is_some()
    }
}

fn too_late(message: &str, limit: Duration, hint: &str) -> Failure {
    Failure::new(format!("{message} within {} s", limit.as_secs()), hint)
}

impl World for Rbd {
    fn begin(&mut self) {
        let queue = Arc::get_mut(&mut self.queue).expect("no request is on its way yet");
        queue.start = Instant::now();
    }

    fn now_ns(&self) -> u64 {
        self.queue.now_ns()
    }

    fn submit(&mut self, slot: u32, request: &Request, memory: Memory) {
        let image = &self.images[request.image as usize];
        let operation = Box::new(Sent {
            slot,
            memory,
            queue: Arc::clone(&self.queue),
        });
        let refused = match request.direction {
            Direction::Read => image.read(request.offset, operation),
            Direction::Write => image.write(request.offset, operation),
            Direction::Flush => image.flush(operation),
        };
        if let Err((errno, operation)) = refused {
            operation.completed(Err(errno));
        }
    }

    fn object(&self, image: u32, offset: u64) -> Option<String> {
        Some(self.layouts[image as usize].object(offset))
    }

    fn take(&mut self, done: &mut Vec<Done>) {
        done.append(&mut self.queue.state().done);
    }

    fn wait(&mut self, until_ns: u64, for_completion: bool) {
        let mut state = self.queue.state();
        let left_ns = until_ns.saturating_sub(self.queue.now_ns());
        if left_ns == 0 || (for_completion && !state.done.is_empty()) {
            return;
        }
        state.is_awaited = for_completion;
        let waited = self
            .queue
            .arrived
            .wait_timeout(state, Duration::from_nanos(left_ns));
        waited.unwrap_or_else(PoisonError::into_inner).0.is_awaited = false;
    }
}
