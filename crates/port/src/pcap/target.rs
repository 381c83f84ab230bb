//! Output files of captures: written completely, or not at all.
//!
//! A file is written under a temporary name in the same folder, and renamed when it is complete. After an error, the old file is
//! unchanged.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use super::error::Fault;
use super::format::Compression;

/// True if both names (`-`: standard input, standard output) refer to the same regular file, also through links. Writing to the input
/// would destroy it.
#[must_use]
pub fn same_file(input: &Path, output: &Path) -> bool {
    let identity = |metadata: fs::Metadata| metadata.is_file().then(|| (metadata.dev(), metadata.ino()));
    let of = |path: &Path, standard: fn() -> io::Result<File>| {
        let metadata = if is_standard(path) { standard().and_then(|file| file.metadata()) } else { fs::metadata(path) };
        metadata.ok().and_then(identity)
    };
    of(input, standard_input).is_some_and(|input| Some(input) == of(output, standard_output))
}

/// The name that a name leads to, over all links, whether or not there is a file.
///
/// # Errors
/// The links lead in a circle, or can't be read.
pub fn followed(path: &Path) -> io::Result<PathBuf> {
    /// The most links from one to the next that are followed, as by Linux.
    const LINKS_MAX: usize = 40;
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        match fs::read_link(&path) {
            // An absolute target replaces the folder of the link.
            Ok(target) => path = path.with_file_name("").join(target),
            // It is no link, or there is nothing.
            Err(error) if [io::ErrorKind::InvalidInput, io::ErrorKind::NotFound].contains(&error.kind()) => {
                return Ok(path);
            }
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other("it leads over too many links, or in a circle"))
}

/// True if the name stands for standard input or output.
pub(super) fn is_standard(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Standard input without the library's buffer.
pub(super) fn standard_input() -> io::Result<File> {
    Ok(File::from(io::stdin().as_fd().try_clone_to_owned()?))
}

/// Standard output without the library's buffer, which would look for line ends.
fn standard_output() -> io::Result<File> {
    Ok(File::from(io::stdout().as_fd().try_clone_to_owned()?))
}

/// A target behind its compression.
pub(super) enum Sink {
    Plain(Target),
    Gzip(flate2::write::GzEncoder<Target>),
    Zstd(zstd::stream::write::Encoder<'static, Target>),
}

impl Sink {
    /// Creates the output; `-` is standard output.
    pub(super) fn create(path: &Path, compression: Option<Compression>) -> Result<Self, Fault> {
        let target = Target::create(path)?;
        Ok(match compression {
            None => Self::Plain(target),
            Some(Compression::Gzip) => {
                Self::Gzip(flate2::write::GzEncoder::new(target, flate2::Compression::default()))
            }
            Some(Compression::Zstd) => {
                let level = zstd::DEFAULT_COMPRESSION_LEVEL;
                Self::Zstd(zstd::stream::write::Encoder::new(target, level).map_err(Fault::Create)?)
            }
        })
    }

    pub(super) fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Plain(target) => target.write_all(bytes),
            Self::Gzip(encoder) => encoder.write_all(bytes),
            Self::Zstd(encoder) => encoder.write_all(bytes),
        }
    }

    /// Completes the output and gives it its name.
    pub(super) fn finish(self) -> io::Result<()> {
        match self {
            Self::Plain(target) => target,
            Self::Gzip(encoder) => encoder.finish()?,
            Self::Zstd(encoder) => encoder.finish()?,
        }
        .commit()
    }
}

/// A file that is being written, a capture or any other. It gets its name with [`commit`](Self::commit).
#[derive(Debug)]
pub struct Target {
    file: File,
    /// The name that it has until it is complete; `None` for pipes, devices and standard output.
    partial: Option<Partial>,
}

impl Target {
    /// Creates the file; `-` is standard output.
    ///
    /// # Errors
    /// The file can't be created.
    pub fn create(path: &Path) -> Result<Self, Fault> {
        if is_standard(path) {
            return Ok(Self { file: standard_output().map_err(Fault::Create)?, partial: None });
        }
        match fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() => Err(Fault::Directory),
            Ok(metadata) if !metadata.is_file() => {
                let file = OpenOptions::new().write(true).open(path).map_err(Fault::Create)?;
                Ok(Self { file, partial: None })
            }
            // Replace the target of a link, not the link. The new file gets the permissions of the old one.
            Ok(metadata) => {
                let target = Self::beside(fs::canonicalize(path).map_err(Fault::Create)?)?;
                target.file.set_permissions(metadata.permissions()).map_err(Fault::Create)?;
                Ok(target)
            }
            // A link that leads to no file yet stays one, too.
            Err(_) => Self::beside(followed(path).map_err(Fault::Create)?),
        }
    }

    fn beside(path: PathBuf) -> Result<Self, Fault> {
        let Some(name) = path.file_name() else {
            return Err(Fault::Create(io::ErrorKind::InvalidInput.into()));
        };
        let temporary = path.with_file_name(partial_name(name.to_owned()));
        let file = File::create_new(&temporary).map_err(Fault::Create)?;
        Ok(Self { file, partial: Some(Partial { temporary, path, kept: false }) })
    }

    /// Gives the file its name.
    ///
    /// # Errors
    /// The file can't be renamed.
    pub fn commit(self) -> io::Result<()> {
        match self.partial {
            None => Ok(()),
            Some(mut partial) => {
                fs::rename(&partial.temporary, &partial.path)?;
                partial.kept = true;
                Ok(())
            }
        }
    }
}

impl Write for Target {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// A unique temporary name.
fn partial_name(mut name: OsString) -> OsString {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    // ORDERING: Relaxed, as only the count itself matters; pairs with other calls of this function.
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    name.push(format!(".{}-{count}.partial", std::process::id()));
    name
}

/// The temporary file; removed unless it was renamed.
#[derive(Debug)]
struct Partial {
    temporary: PathBuf,
    path: PathBuf,
    kept: bool,
}

impl Drop for Partial {
    fn drop(&mut self) {
        if !self.kept {
            // The error can't be reported here, and the old file is unchanged.
            let _ = fs::remove_file(&self.temporary);
        }
    }
}
