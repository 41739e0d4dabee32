//! The connection to a cluster, and its pools.

use std::ffi::{CString, c_int};
use std::path::Path;
use std::ptr;
use std::sync::Arc;

use crate::error::Error;
use crate::functions::{Handle, Rados};

/// Which cluster, and as whom.
#[derive(Clone, Copy, Debug)]
pub struct ClusterOptions<'a> {
    /// The configuration file; without one Ceph looks where it always does (`CEPH_CONF`, `/etc/ceph/ceph.conf`).
    pub conf: Option<&'a Path>,
    /// The client's whole name: `client.admin`.
    pub client: &'a str,
    /// The keyring; without one, that of the configuration.
    pub keyring: Option<&'a Path>,
    /// How long monitors may take to answer, in seconds: connecting and asking them for a pool end by it.
    pub timeout_s: u32,
    /// More options of the client, which come after the configuration file.
    pub options: &'a [(String, String)],
}

/// A connection to a cluster.
pub struct Cluster {
    rados: &'static Rados,
    handle: Handle,
}

// SAFETY: once it is connected, nothing but `rados_ioctx_create` is called with the handle, for which librados takes locks of
// its own, and `rados_shutdown`, when nobody else has it.
unsafe impl Send for Cluster {}
// SAFETY: as above.
unsafe impl Sync for Cluster {}

impl Cluster {
    /// Connect to a cluster.
    ///
    /// # Errors
    /// If librados is missing, an option is wrong, or no monitor lets the client in within the time limit.
    pub fn connect(options: &ClusterOptions<'_>) -> Result<Arc<Self>, Error> {
        let rados = Rados::loaded()?;
        let client = c_string(options.client)?;
        let mut handle = ptr::null_mut();
        // SAFETY: `handle` is where the handle is written to; the name is a C string that lives through the call.
        let result = unsafe { (rados.create2)(&raw mut handle, ptr::null(), client.as_ptr(), 0) };
        check("rados_create2", result, || options.client.to_owned())?;
        let cluster = Self { rados, handle };
        cluster.read_conf(options.conf)?;
        if let Some(keyring) = options.keyring {
            cluster.set("keyring", path_text(keyring)?)?;
        }
        for option in ["client_mount_timeout", "rados_mon_op_timeout"] {
            cluster.set(option, &options.timeout_s.to_string())?;
        }
        for (option, value) in options.options {
            cluster.set(option, value)?;
        }
        // SAFETY: the handle is one of `rados_create2` that has not been connected.
        let result = unsafe { (rados.connect)(handle) };
        check("rados_connect", result, || {
            format!("the cluster, as {}", options.client)
        })?;
        Ok(Arc::new(cluster))
    }

    fn read_conf(&self, conf: Option<&Path>) -> Result<(), Error> {
        let path = conf.map(|path| path_text(path).and_then(c_string)).transpose()?;
        let pointer = path.as_ref().map_or(ptr::null(), |path| path.as_ptr());
        // SAFETY: the handle is valid; the path is NULL or a C string that lives through the call.
        let result = unsafe { (self.rados.conf_read_file)(self.handle, pointer) };
        check("rados_conf_read_file", result, || {
            conf.map_or("the default ceph.conf".to_owned(), |path| {
                path.display().to_string()
            })
        })
    }

    fn set(&self, option: &str, value: &str) -> Result<(), Error> {
        let (name, text) = (c_string(option)?, c_string(value)?);
        // SAFETY: the handle is valid and not connected; both are C strings that live through the call.
        let result = unsafe { (self.rados.conf_set)(self.handle, name.as_ptr(), text.as_ptr()) };
        check("rados_conf_set", result, || {
            format!("the option {option} = {value}")
        })
    }

    /// Open a pool, or a namespace of it ("" is the pool's default one).
    ///
    /// # Errors
    /// If there is no such pool or the client may not use it.
    pub fn pool(self: &Arc<Self>, name: &str, namespace: &str) -> Result<Arc<Pool>, Error> {
        let (c_name, c_namespace) = (c_string(name)?, c_string(namespace)?);
        let mut handle = ptr::null_mut();
        // SAFETY: the cluster is connected; `handle` is where the handle is written to.
        let result = unsafe { (self.rados.ioctx_create)(self.handle, c_name.as_ptr(), &raw mut handle) };
        check("rados_ioctx_create", result, || format!("the pool {name}"))?;
        // SAFETY: the handle is new, so no other thread uses it; the namespace is a C string.
        unsafe { (self.rados.ioctx_set_namespace)(handle, c_namespace.as_ptr()) };
        Ok(Arc::new(Pool {
            name: name.to_owned(),
            handle,
            cluster: Arc::clone(self),
        }))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // SAFETY: the handle is one of `rados_create2`, and who holds a pool holds the cluster, so nothing uses it.
        unsafe { (self.rados.shutdown)(self.handle) };
    }
}

/// A pool of a cluster.
pub struct Pool {
    name: String,
    handle: Handle,
    cluster: Arc<Cluster>,
}

// SAFETY: what is not safe with several threads is changing an I/O context, and nothing changes this one once it is made.
unsafe impl Send for Pool {}
// SAFETY: as above.
unsafe impl Sync for Pool {}

impl Pool {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn handle(&self) -> Handle {
        self.handle
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: the handle is one of `rados_ioctx_create`; images of it, which hold the pool, are closed.
        unsafe { (self.cluster.rados.ioctx_destroy)(self.handle) };
    }
}

pub(crate) fn c_string(text: &str) -> Result<CString, Error> {
    CString::new(text).map_err(|_| Error::HasNul {
        text: text.to_owned(),
    })
}

fn path_text(path: &Path) -> Result<&str, Error> {
    path.to_str().ok_or_else(|| Error::Failed {
        call: "rados_conf_set",
        subject: format!("{} is not UTF-8", path.display()),
        errno: libc::EILSEQ,
    })
}

/// Functions of both libraries return 0, or a negative error number.
pub(crate) fn check(
    call: &'static str,
    result: c_int,
    subject: impl FnOnce() -> String,
) -> Result<(), Error> {
    if result >= 0 {
        return Ok(());
    }
    Err(Error::Failed {
        call,
        subject: subject(),
        errno: -result,
    })
}
