//! RBD images.

use std::ffi::{CStr, c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Arc;

use crate::cluster::{Pool, c_string, check};
use crate::error::Error;
use crate::functions::{Callback, Handle, ImageInfo, Rbd};
use crate::layout::Layout;

/// Names of objects begin with the pool's and the image's number.
const PREFIX_BYTES: usize = 256;

/// A read, write or flush on its way, which owns the memory that it needs.
pub trait Operation: Send + 'static {
    /// What a write writes.
    fn data(&self) -> &[u8];

    /// What a read fills.
    fn memory(&mut self) -> &mut [u8];

    /// It has completed, or failed with a number of `errno.h`. A thread of the library calls this: nothing here may wait.
    fn completed(self: Box<Self>, result: Result<(), i32>);
}

/// What an image is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reading: nobody is told that the image is open. Librbd notes the time of a read in the image's header, unless
    /// `rbd_atime_update_interval` is 0.
    ReadOnly,
    /// Reading and writing.
    ReadWrite,
}

/// An open RBD image.
pub struct Image {
    rbd: &'static Rbd,
    handle: Handle,
    // Closed before the pool is given back.
    _pool: Arc<Pool>,
}

// SAFETY: an image may be used from any thread: librbd takes its own locks, and its own threads complete operations.
unsafe impl Send for Image {}
// SAFETY: as above.
unsafe impl Sync for Image {}

impl Image {
    /// Open an image of a pool. Waits for as long as its OSDs do not answer.
    ///
    /// # Errors
    /// If librbd is missing, or the image, or the right to use it.
    pub fn open(pool: &Arc<Pool>, name: &str, access: Access) -> Result<Self, Error> {
        let rbd = Rbd::loaded()?;
        let c_name = c_string(name)?;
        let mut handle = ptr::null_mut();
        let (call, open) = match access {
            Access::ReadOnly => ("rbd_open_read_only", rbd.open_read_only),
            Access::ReadWrite => ("rbd_open", rbd.open),
        };
        // SAFETY: the pool is open and is held by the image; the name lives through the call, no snapshot is named, and
        // `handle` is where the handle is written to.
        let result = unsafe { open(pool.handle(), c_name.as_ptr(), &raw mut handle, ptr::null()) };
        check(call, result, || {
            format!("the image {name} of the pool {}", pool.name())
        })?;
        Ok(Self {
            rbd,
            handle,
            _pool: Arc::clone(pool),
        })
    }

    /// The version of librbd: 1.16.0 is that of Ceph 16.2.
    ///
    /// # Errors
    /// If librbd is missing.
    pub fn library_version() -> Result<String, Error> {
        let (mut major, mut minor, mut extra) = (0, 0, 0);
        // SAFETY: it writes three numbers.
        unsafe { (Rbd::loaded()?.version)(&raw mut major, &raw mut minor, &raw mut extra) };
        Ok(format!("{major}.{minor}.{extra}"))
    }

    /// Its size, and where its data lie. May ask the cluster.
    ///
    /// # Errors
    /// If the library has no answer.
    pub fn layout(&self) -> Result<Layout, Error> {
        let checked = |call, result| check(call, result, || "the image".to_owned());
        let mut info = MaybeUninit::<ImageInfo>::zeroed();
        // SAFETY: the image is open; there is room for as much as is said.
        let result = unsafe { (self.rbd.stat)(self.handle, info.as_mut_ptr(), size_of::<ImageInfo>()) };
        checked("rbd_stat", result)?;
        // SAFETY: numbers and characters may be all zero, and what is not was written.
        let info = unsafe { info.assume_init() };
        let (mut stripe_unit, mut stripe_count) = (0, 0);
        // SAFETY: the image is open; a number is written.
        let result = unsafe { (self.rbd.get_stripe_unit)(self.handle, &raw mut stripe_unit) };
        checked("rbd_get_stripe_unit", result)?;
        // SAFETY: as above.
        let result = unsafe { (self.rbd.get_stripe_count)(self.handle, &raw mut stripe_count) };
        checked("rbd_get_stripe_count", result)?;
        let mut prefix = [0_u8; PREFIX_BYTES];
        // SAFETY: the image is open; there is room for as much as is said.
        let result = unsafe {
            (self.rbd.get_block_name_prefix)(self.handle, prefix.as_mut_ptr().cast(), PREFIX_BYTES)
        };
        checked("rbd_get_block_name_prefix", result)?;
        let prefix = CStr::from_bytes_until_nul(&prefix).unwrap_or_default();
        Ok(Layout {
            size_bytes: info.size,
            object_bytes: info.obj_size,
            stripe_unit,
            stripe_count,
            prefix: prefix.to_string_lossy().into_owned(),
        })
    }

    /// Start to read from `offset` on into the operation's memory.
    ///
    /// # Errors
    /// If the library does not take it; the operation comes back.
    pub fn read<O: Operation>(&self, offset: u64, operation: Box<O>) -> Result<(), (i32, Box<O>)> {
        self.start(operation, read_completed::<O>, |operation, completion| {
            // SAFETY: the operation is alive, and nobody else has it: `start` took it out of its box.
            let memory = unsafe { (*operation).memory() };
            let (start, length) = (memory.as_mut_ptr().cast(), memory.len());
            // SAFETY: the image is open. The memory is the operation's, whom nobody touches before the completion.
            unsafe { (self.rbd.aio_read)(self.handle, offset, length, start, completion) }
        })
    }

    /// Start to write the operation's data from `offset` on.
    ///
    /// # Errors
    /// If the library does not take it; the operation comes back.
    pub fn write<O: Operation>(&self, offset: u64, operation: Box<O>) -> Result<(), (i32, Box<O>)> {
        self.start(operation, completed::<O>, |operation, completion| {
            // SAFETY: the operation is alive, and nobody else has it: `start` took it out of its box.
            let data = unsafe { (*operation).data() };
            let (start, length) = (data.as_ptr().cast(), data.len());
            // SAFETY: the image is open. The data are the operation's, whom nobody touches before the completion. The
            // library only reads them, does not copy them, and completes after its last use of them.
            unsafe { (self.rbd.aio_write)(self.handle, offset, length, start, completion) }
        })
    }

    /// Start to make durable what has been written.
    ///
    /// # Errors
    /// If the library does not take it; the operation comes back.
    pub fn flush<O: Operation>(&self, operation: Box<O>) -> Result<(), (i32, Box<O>)> {
        self.start(operation, completed::<O>, |_, completion| {
            // SAFETY: the image is open, and the completion is new.
            unsafe { (self.rbd.aio_flush)(self.handle, completion) }
        })
    }

    /// Give an operation to the library with a completion that gives it back.
    fn start<O: Operation>(
        &self,
        operation: Box<O>,
        then: Callback,
        call: impl FnOnce(*mut O, Handle) -> c_int,
    ) -> Result<(), (i32, Box<O>)> {
        let operation = Box::into_raw(operation);
        let mut completion = ptr::null_mut();
        // SAFETY: the argument is for `then` alone, which is `completed::<O>` or `read_completed::<O>` and expects a pointer
        // of `Box::into_raw` for an `O`.
        let created =
            unsafe { (self.rbd.aio_create_completion)(operation.cast(), then, &raw mut completion) };
        let result = if created < 0 {
            created
        } else {
            call(operation, completion)
        };
        if result >= 0 {
            return Ok(());
        }
        if created >= 0 {
            // SAFETY: the call returned an error, which librbd does before it takes an operation, so that the completion
            // is still ours alone.
            unsafe { (self.rbd.aio_release)(completion) };
        }
        // SAFETY: as above: the library does not have it, so no callback will take it.
        Err((-result, unsafe { Box::from_raw(operation) }))
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        // SAFETY: the image is open and nobody uses it any more. Operations that are on their way are completed by the
        // library first, or later: they own all that they need.
        let result = unsafe { (self.rbd.close)(self.handle) };
        debug_assert!(result <= 0, "rbd_close returned {result}");
    }
}

/// What librbd calls when a write or a flush has completed.
extern "C" fn completed<O: Operation>(completion: Handle, argument: *mut c_void) {
    // SAFETY: librbd calls this once, with the completion and the argument of `start`.
    let (result, operation) = unsafe { given_back::<O>(completion, argument) };
    operation.completed(if result < 0 { Err(-result as i32) } else { Ok(()) });
}

/// What librbd calls when a read has completed. One that has less than was asked for, at the end of an image that has become
/// smaller, has failed: the rest of the memory is that of an earlier operation.
extern "C" fn read_completed<O: Operation>(completion: Handle, argument: *mut c_void) {
    // SAFETY: librbd calls this once, with the completion and the argument of `start`.
    let (result, mut operation) = unsafe { given_back::<O>(completion, argument) };
    let asked = operation.memory().len();
    operation.completed(match usize::try_from(result) {
        Ok(bytes) if bytes == asked => Ok(()),
        Ok(_) => Err(libc::EIO),
        Err(_) => Err(-result as i32),
    });
}

/// The result of an operation that librbd has completed, and the operation.
///
/// # Safety
/// Both must be those of one call of `Image::start` with an `O`, and given once.
unsafe fn given_back<O: Operation>(completion: Handle, argument: *mut c_void) -> (isize, Box<O>) {
    let Ok(rbd) = Rbd::loaded() else {
        unreachable!("librbd calls this");
    };
    // SAFETY: the completion has its result, and is released once.
    let result = unsafe {
        let result = (rbd.aio_get_return_value)(completion);
        (rbd.aio_release)(completion);
        result
    };
    // SAFETY: the argument is the pointer of `Box::into_raw` that `start` gave with this completion.
    (result, unsafe { Box::from_raw(argument.cast::<O>()) })
}
