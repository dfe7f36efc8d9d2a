//! A local file system store whose writes survive a power failure.

use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path as FsPath, PathBuf};

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{
    CopyMode, CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions, Result,
    UploadPart,
};
use uuid::Uuid;

const NAME: &str = "DurableLocal";

/// The local file system as an object store whose writes are on the disk when they return.
///
/// A put writes a staged file, syncs it, moves it to its final name (atomically, refusing to replace for
/// [`PutMode::Create`]) and syncs the directory. Reads and lists are those of [`LocalFileSystem`], with the
/// same paths, rooted at `/`.
///
/// Permissions: new directories get the mode of the directory that contains the staging directory, and new
/// files that mode without the execute bits. A directory that the store creates is accessible to its owner
/// only (0700); an operator who wants other programs to read the tables provides a directory that they may
/// read.
///
/// Bounds: staged files are in one directory that is emptied by [`DurableLocal::open`], so remains of a crash
/// exist only until the next restart. Staging and target must be on one file system.
#[derive(Debug)]
pub struct DurableLocal {
    inner: LocalFileSystem,
    staging: PathBuf,
    mode: DirMode,
}

/// Permission bits of new directories.
#[derive(Debug, Clone, Copy)]
struct DirMode(u32);

impl DirMode {
    const PRIVATE: Self = Self(0o700);

    fn of(dir: &FsPath) -> io::Result<Self> {
        Ok(Self(fs::metadata(dir)?.mode() & 0o777 | Self::PRIVATE.0))
    }

    fn of_files(self) -> Permissions {
        Permissions::from_mode(self.0 & 0o666)
    }
}

impl DurableLocal {
    /// Opens a store that stages its writes in `staging`, which is created, or emptied of the remains of a
    /// crash.
    ///
    /// Errors: those of creating or emptying the directory.
    pub fn open(staging: PathBuf) -> io::Result<Self> {
        let mode = DirMode::of(parent(&staging)).or_else(|e| match e.kind() {
            io::ErrorKind::NotFound => Ok(DirMode::PRIVATE),
            _ => Err(e),
        })?;
        create_dir_durably(&staging)?;
        for entry in fs::read_dir(&staging)? {
            match fs::remove_file(entry?.path()) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                _ => {}
            }
        }
        Ok(Self { inner: LocalFileSystem::new(), staging, mode })
    }

    /// Sets the mode of the file at `location` and syncs the file and its directory.
    async fn sync(&self, location: &Path) -> Result<()> {
        let path = self.inner.path_to_filesystem(location)?;
        let mode = self.mode;
        blocking(path, move |path| finish(path, mode)).await
    }
}

impl fmt::Display for DurableLocal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(NAME)
    }
}

#[async_trait]
impl ObjectStore for DurableLocal {
    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        let create = match opts.mode {
            PutMode::Create => true,
            PutMode::Overwrite => false,
            // The inner store returns its own error for this mode.
            PutMode::Update(_) => return self.inner.put_opts(location, payload, opts).await,
        };
        if !opts.attributes.is_empty() {
            return self.inner.put_opts(location, payload, opts).await;
        }
        let target = self.inner.path_to_filesystem(location)?;
        let staged = self.staging.join(Uuid::new_v4().simple().to_string());
        let (mode, path) = (self.mode, target.clone());
        let task = move || {
            let outcome = write_durably(&staged, &target, &payload, create, mode);
            // After a link the staged name is superfluous, after a failure the file is garbage; after a
            // rename it no longer exists.
            let _ = fs::remove_file(&staged);
            outcome
        };
        match tokio::task::spawn_blocking(task).await? {
            Ok(()) => Ok(PutResult { e_tag: None, version: None }),
            Err(e) if create && e.kind() == io::ErrorKind::AlreadyExists => {
                Err(Error::AlreadyExists { path: path.display().to_string(), source: e.into() })
            }
            Err(e) => Err(store_failure(&path, e)),
        }
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        opts: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let target = self.inner.path_to_filesystem(location)?;
        let mode = self.mode;
        blocking(parent(&target).to_owned(), move |dir| create_dir_with(dir, mode)).await?;
        let upload = self.inner.put_multipart_opts(location, opts).await?;
        Ok(Box::new(DurableUpload { upload, target, mode }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.inner.get_opts(location, options).await
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.inner.get_ranges(location, ranges).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list_with_offset(prefix, offset)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        let create = matches!(options.mode, CopyMode::Create);
        self.inner.copy_opts(from, to, options).await?;
        tracing::trace!(%from, %to, create, "copied a file");
        self.sync(to).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        self.inner.rename_opts(from, to, options).await?;
        self.sync(to).await?;
        let old = self.inner.path_to_filesystem(from)?;
        blocking(old, sync_parent).await
    }
}

/// A multipart upload that is synced when it completes.
#[derive(Debug)]
struct DurableUpload {
    upload: Box<dyn MultipartUpload>,
    target: PathBuf,
    mode: DirMode,
}

#[async_trait]
impl MultipartUpload for DurableUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        self.upload.put_part(data)
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let done = self.upload.complete().await?;
        let (target, mode) = (self.target.clone(), self.mode);
        blocking(target, move |path| finish(path, mode)).await?;
        Ok(done)
    }

    async fn abort(&mut self) -> Result<()> {
        self.upload.abort().await
    }
}

async fn blocking(
    path: PathBuf,
    task: impl FnOnce(&FsPath) -> io::Result<()> + Send + 'static,
) -> Result<()> {
    tokio::task::spawn_blocking(move || task(&path).map_err(|e| store_failure(&path, e))).await?
}

/// Converts an I/O error; permission errors are not transient, because retrying does not help.
fn store_failure(path: &FsPath, error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            Error::PermissionDenied { path: path.display().to_string(), source: error.into() }
        }
        _ => Error::Generic { store: NAME, source: error.into() },
    }
}

/// Writes and syncs the content before it creates the name and syncs the directory, so that a durable name
/// always has its content.
fn write_durably(
    staged: &FsPath,
    target: &FsPath,
    payload: &PutPayload,
    create: bool,
    mode: DirMode,
) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(staged)?;
    file.set_permissions(mode.of_files())?;
    for part in payload {
        file.write_all(part)?;
    }
    file.sync_all()?;
    drop(file);
    // A hard link never replaces a file, a rename does.
    let name = || if create { fs::hard_link(staged, target) } else { fs::rename(staged, target) };
    if let Err(e) = name() {
        if e.kind() != io::ErrorKind::NotFound {
            return Err(e);
        }
        create_dir_with(parent(target), mode)?;
        name()?;
    }
    sync_parent(target)
}

fn parent(path: &FsPath) -> &FsPath {
    path.parent().unwrap_or(FsPath::new("/"))
}

fn sync_parent(path: &FsPath) -> io::Result<()> {
    File::open(parent(path))?.sync_all()
}

/// Sets the mode of a file that the inner store has written, and makes it durable.
fn finish(path: &FsPath, mode: DirMode) -> io::Result<()> {
    let file = File::open(path)?;
    file.set_permissions(mode.of_files())?;
    file.sync_all()?;
    sync_parent(path)
}

/// Creates `dir` and its missing parents, accessible to their owner only; syncs each new entry's directory.
pub(crate) fn create_dir_durably(dir: &FsPath) -> io::Result<()> {
    create_dir_with(dir, DirMode::PRIVATE)
}

fn create_dir_with(dir: &FsPath, mode: DirMode) -> io::Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    if let Some(above) = dir.parent() {
        create_dir_with(above, mode)?;
    }
    match DirBuilder::new().mode(DirMode::PRIVATE.0).create(dir) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => sync_parent(dir),
        Err(e) => Err(e),
        Ok(()) => {
            fs::set_permissions(dir, Permissions::from_mode(mode.0))?;
            sync_parent(dir)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use object_store::ObjectStoreExt;

    fn mode(path: &FsPath) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o777
    }

    /// Writes one file by put, one in parts and one by copy below `dir`; returns the modes of all files and
    /// directories.
    fn modes_below(dir: &FsPath) -> Vec<(String, u32)> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let store = DurableLocal::open(dir.join(".staging")).unwrap();
            let path = |name: &str| Path::from_absolute_path(dir.join(name)).unwrap();
            store.put(&path("new/one"), "x".into()).await.unwrap();
            let mut upload = store.put_multipart(&path("new/parts")).await.unwrap();
            upload.put_part("x".into()).await.unwrap();
            upload.complete().await.unwrap();
            store.copy(&path("new/one"), &path("new/copy")).await.unwrap();
        });
        let names = ["", ".staging", "new", "new/one", "new/parts", "new/copy"];
        names.iter().map(|name| ((*name).to_owned(), mode(&dir.join(name)))).collect()
    }

    #[test]
    fn files_are_for_their_owner_only() {
        let outer = tempfile::tempdir().unwrap();
        let dir = outer.path().join("tables");
        create_dir_durably(&dir).unwrap();
        let modes: Vec<u32> = modes_below(&dir).into_iter().map(|(_, mode)| mode).collect();
        assert_eq!(modes, [0o700, 0o700, 0o700, 0o600, 0o600, 0o600]);
    }

    #[test]
    fn a_directory_that_others_may_read_has_files_that_they_may_read() {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), Permissions::from_mode(0o750)).unwrap();
        let modes = modes_below(dir.path());
        let expected = [("", 0o750), (".staging", 0o700), ("new", 0o750), ("new/one", 0o640)];
        for (name, mode) in expected.into_iter().chain([("new/parts", 0o640), ("new/copy", 0o640)]) {
            assert!(modes.contains(&(name.to_owned(), mode)), "{name}: {modes:?}");
        }
    }

    #[test]
    fn what_is_not_allowed_is_not_tried_again() {
        let full = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded];
        for kind in
            [io::ErrorKind::PermissionDenied, io::ErrorKind::ReadOnlyFilesystem].into_iter().chain(full)
        {
            assert!(!crate::error::is_transient(&store_failure(FsPath::new("/t"), kind.into())), "{kind}");
        }
        assert!(crate::error::is_transient(&store_failure(
            FsPath::new("/t"),
            io::ErrorKind::TimedOut.into()
        )));
    }
}
