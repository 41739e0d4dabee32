//! Shared libraries that are loaded at run time.

use std::ffi::{CStr, c_int, c_void};
use std::ptr::NonNull;

use crate::error::Error;

/// What a library says its version is: `rados_version`, `rbd_version`.
pub(crate) type VersionFunction = unsafe extern "C" fn(*mut c_int, *mut c_int, *mut c_int);

/// A library that stays loaded: threads of its own run in it until the process ends.
pub(crate) struct Library {
    file: &'static str,
    handle: NonNull<c_void>,
}

impl Library {
    /// Load the library `file`, a name that ends in NUL; what it needs is loaded with it.
    pub(crate) fn open(file: &'static CStr) -> Result<Self, Error> {
        let name = file.to_str().unwrap_or("a library");
        // SAFETY: `file` is a C string. Loading runs the initialisers of the libraries of the machine's own Ceph, which
        // are made to be loaded by any program.
        let handle = unsafe { libc::dlopen(file.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        let handle = NonNull::new(handle).ok_or_else(|| Error::NoLibrary {
            file: name,
            reason: loader_message(),
        })?;
        Ok(Self { file: name, handle })
    }

    /// The address of a function; `version` is the name of the library's function of type [`VersionFunction`].
    pub(crate) fn function(
        &self,
        function: &'static CStr,
        version: &'static CStr,
    ) -> Result<NonNull<c_void>, Error> {
        self.address(function).ok_or_else(|| Error::NoFunction {
            file: self.file,
            version: self.version(version),
            function: function.to_str().unwrap_or("a function"),
        })
    }

    fn address(&self, function: &CStr) -> Option<NonNull<c_void>> {
        // SAFETY: the handle is one of `dlopen` and is never closed; `function` is a C string.
        NonNull::new(unsafe { libc::dlsym(self.handle.as_ptr(), function.as_ptr()) })
    }

    fn version(&self, version: &CStr) -> String {
        let Some(address) = self.address(version) else {
            return "unknown".to_owned();
        };
        let (mut major, mut minor, mut extra) = (0, 0, 0);
        // SAFETY: the caller names a function of this type, which every version of both libraries has declared so since
        // Ceph 0.94; it writes three numbers.
        unsafe {
            let version = std::mem::transmute::<NonNull<c_void>, VersionFunction>(address);
            version(&raw mut major, &raw mut minor, &raw mut extra);
        }
        format!("{major}.{minor}.{extra}")
    }
}

fn loader_message() -> String {
    // SAFETY: `dlerror` returns NULL or a C string that is valid until the next call of this thread to the loader.
    unsafe {
        let message = libc::dlerror();
        if message.is_null() {
            "no reason given".to_owned()
        } else {
            CStr::from_ptr(message).to_string_lossy().into_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named() {
        let missing = Library::open(c"libbathy-none.so.7")
            .err()
            .map(|it| it.to_string());
        assert!(missing.is_some_and(|it| it.starts_with("libbathy-none.so.7 cannot be loaded: ")));
        let Ok(library) = Library::open(c"libc.so.6") else {
            panic!("every program here has the C library");
        };
        assert!(library.function(c"getpid", c"none").is_ok());
        let missing = library.function(c"bathy_none", c"none").err();
        assert_eq!(
            missing.map(|it| it.to_string()),
            Some("libc.so.6 (version unknown) has no function bathy_none".to_owned())
        );
    }
}
