//! The functions that are called, as librados.h and librbd.h of Ceph 16.2.15, 18.2.7 and 20.2.4 declare them, in the same words.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::NonNull;
use std::sync::OnceLock;

use crate::error::Error;
use crate::library::Library;

/// `rados_t`, `rados_ioctx_t`, `rbd_image_t`, `rbd_completion_t`: pointers to what only the libraries know.
pub(crate) type Handle = *mut c_void;

/// `rbd_callback_t`.
pub(crate) type Callback = unsafe extern "C" fn(completion: Handle, argument: *mut c_void);

/// `rbd_image_info_t`.
#[repr(C)]
pub(crate) struct ImageInfo {
    pub(crate) size: u64,
    pub(crate) obj_size: u64,
    _num_objs: u64,
    _order: c_int,
    _block_name_prefix: [c_char; 24],
    _parent_pool: i64,
    _parent_name: [c_char; 96],
}

macro_rules! functions {
    (
        $(#[$about:meta])* $table:ident is $file:literal with $version:literal:
        $(fn $name:ident = $symbol:literal ($($type:ty),*) $(-> $result:ty)?;)*
    ) => {
        $(#[$about])*
        pub(crate) struct $table { $(pub(crate) $name: unsafe extern "C" fn($($type),*) $(-> $result)?),* }

        impl $table {
            /// The functions; the library is loaded by the first call.
            pub(crate) fn loaded() -> Result<&'static Self, Error> {
                static TABLE: OnceLock<Result<$table, Error>> = OnceLock::new();
                TABLE.get_or_init(Self::load).as_ref().map_err(Clone::clone)
            }

            fn load() -> Result<Self, Error> {
                let library = Library::open($file)?;
                Ok(Self { $($name: {
                    let address = library.function($symbol, $version)?;
                    // SAFETY: the library is Ceph's by its name and major version, and its header declares the function
                    // of this name with these arguments in every release from 16.2 to 20.2. It stays loaded.
                    unsafe {
                        std::mem::transmute::<
                            NonNull<c_void>,
                            unsafe extern "C" fn($($type),*) $(-> $result)?,
                        >(address)
                    }
                }),* })
            }
        }
    };
}

functions! {
    /// librados.
    Rados is c"librados.so.2" with c"rados_version":
    // cluster, the cluster's name or NULL, the client's name, flags
    fn create2 = c"rados_create2" (*mut Handle, *const c_char, *const c_char, u64) -> c_int;
    // cluster, path or NULL
    fn conf_read_file = c"rados_conf_read_file" (Handle, *const c_char) -> c_int;
    // cluster, option, value
    fn conf_set = c"rados_conf_set" (Handle, *const c_char, *const c_char) -> c_int;
    fn connect = c"rados_connect" (Handle) -> c_int;
    fn shutdown = c"rados_shutdown" (Handle);
    // cluster, pool
    fn ioctx_create = c"rados_ioctx_create" (Handle, *const c_char, *mut Handle) -> c_int;
    // pool, name of a namespace
    fn ioctx_set_namespace = c"rados_ioctx_set_namespace" (Handle, *const c_char);
    fn ioctx_destroy = c"rados_ioctx_destroy" (Handle);
}

functions! {
    /// librbd.
    Rbd is c"librbd.so.1" with c"rbd_version":
    fn version = c"rbd_version" (*mut c_int, *mut c_int, *mut c_int);
    // pool, image, handle, snapshot or NULL
    fn open = c"rbd_open" (Handle, *const c_char, *mut Handle, *const c_char) -> c_int;
    fn open_read_only = c"rbd_open_read_only" (Handle, *const c_char, *mut Handle, *const c_char) -> c_int;
    fn close = c"rbd_close" (Handle) -> c_int;
    // image, information, its size
    fn stat = c"rbd_stat" (Handle, *mut ImageInfo, usize) -> c_int;
    fn get_stripe_unit = c"rbd_get_stripe_unit" (Handle, *mut u64) -> c_int;
    fn get_stripe_count = c"rbd_get_stripe_count" (Handle, *mut u64) -> c_int;
    // image, room for a C string, how much
    fn get_block_name_prefix = c"rbd_get_block_name_prefix" (Handle, *mut c_char, usize) -> c_int;
    // argument of the callback, callback
    fn aio_create_completion = c"rbd_aio_create_completion" (*mut c_void, Callback, *mut Handle) -> c_int;
    // image, offset, length, memory, completion
    fn aio_read = c"rbd_aio_read" (Handle, u64, usize, *mut c_char, Handle) -> c_int;
    fn aio_write = c"rbd_aio_write" (Handle, u64, usize, *const c_char, Handle) -> c_int;
    fn aio_flush = c"rbd_aio_flush" (Handle, Handle) -> c_int;
    fn aio_get_return_value = c"rbd_aio_get_return_value" (Handle) -> isize;
    fn aio_release = c"rbd_aio_release" (Handle);
}
