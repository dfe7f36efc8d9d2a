//! Local files that survive a power cut.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write};
use std::ops::Range;
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
/// A put writes a staged file, syncs it, gives it its name (atomically, refusing to replace for
/// [`PutMode::Create`]) and syncs the directory. Reads and lists are those of [`LocalFileSystem`], with the
/// same paths, rooted at `/`.
///
/// Bounds: staged files lie in one directory that is emptied by [`DurableLocal::open`], so a crash leaves
/// nothing behind for longer than one restart. Staging and target must be on one file system.
#[derive(Debug)]
pub struct DurableLocal {
    inner: LocalFileSystem,
    staging: PathBuf,
}

impl DurableLocal {
    /// A store that stages its writes in `staging`, which is created, or emptied of what a crash left there.
    ///
    /// Errors: those of creating or emptying the directory.
    pub fn open(staging: PathBuf) -> io::Result<Self> {
        create_dir_durably(&staging)?;
        for entry in fs::read_dir(&staging)? {
            match fs::remove_file(entry?.path()) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                _ => {}
            }
        }
        Ok(Self { inner: LocalFileSystem::new(), staging })
    }

    /// Syncs the file at `location` and its directory.
    async fn sync(&self, location: &Path) -> Result<()> {
        let path = self.inner.path_to_filesystem(location)?;
        blocking(move || {
            File::open(&path)?.sync_all()?;
            sync_parent(&path)
        })
        .await
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
            // refused by the inner store with its own words
            PutMode::Update(_) => return self.inner.put_opts(location, payload, opts).await,
        };
        if !opts.attributes.is_empty() {
            return self.inner.put_opts(location, payload, opts).await;
        }
        let target = self.inner.path_to_filesystem(location)?;
        let staged = self.staging.join(Uuid::new_v4().simple().to_string());
        let shown = location.to_string();
        let task = move || {
            let outcome = write_durably(&staged, &target, &payload, create);
            // after a link the staged name is superfluous; after a failure it is rubbish; after a rename it
            // is gone
            let _ = fs::remove_file(&staged);
            outcome
        };
        match tokio::task::spawn_blocking(task).await? {
            Ok(()) => Ok(PutResult { e_tag: None, version: None }),
            Err(e) if create && e.kind() == io::ErrorKind::AlreadyExists => {
                Err(Error::AlreadyExists { path: shown, source: e.into() })
            }
            Err(e) => Err(generic(e)),
        }
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        opts: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let upload = self.inner.put_multipart_opts(location, opts).await?;
        let target = self.inner.path_to_filesystem(location)?;
        Ok(Box::new(DurableUpload { upload, target }))
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
        blocking(move || sync_parent(&old)).await
    }
}

/// An upload in parts that is synced when it completes.
#[derive(Debug)]
struct DurableUpload {
    upload: Box<dyn MultipartUpload>,
    target: PathBuf,
}

#[async_trait]
impl MultipartUpload for DurableUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        self.upload.put_part(data)
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let done = self.upload.complete().await?;
        let target = self.target.clone();
        blocking(move || {
            File::open(&target)?.sync_all()?;
            sync_parent(&target)
        })
        .await?;
        Ok(done)
    }

    async fn abort(&mut self) -> Result<()> {
        self.upload.abort().await
    }
}

async fn blocking(task: impl FnOnce() -> io::Result<()> + Send + 'static) -> Result<()> {
    tokio::task::spawn_blocking(task).await?.map_err(generic)
}

fn generic(error: io::Error) -> Error {
    Error::Generic { store: NAME, source: error.into() }
}

/// The bytes first, then the name, then the directory: a name on the disk always has its bytes.
fn write_durably(staged: &FsPath, target: &FsPath, payload: &PutPayload, create: bool) -> io::Result<()> {
    let mut file = File::create_new(staged)?;
    for part in payload {
        file.write_all(part)?;
    }
    file.sync_all()?;
    drop(file);
    // a hard link never replaces: it is the "create" that a rename is not
    let name = || if create { fs::hard_link(staged, target) } else { fs::rename(staged, target) };
    if let Err(e) = name() {
        if e.kind() != io::ErrorKind::NotFound {
            return Err(e);
        }
        create_dir_durably(parent(target))?;
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

/// Creates `dir` and what is missing above it; each new name is synced in its directory.
pub(crate) fn create_dir_durably(dir: &FsPath) -> io::Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    if let Some(above) = dir.parent() {
        create_dir_durably(above)?;
    }
    match fs::create_dir(dir) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(e),
        _ => sync_parent(dir),
    }
}
