//! The state of partitions in an object store.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{IoSlice, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tidemill_log::disk::{Disk, DiskFile, FileReader, create_dir_durably, write_all};
use tidemill_types::{Error, Offset, PartitionId, Result};
use tidemill_zones::ObjectDirectory;

use super::files::{directory_names, names_below, partition_dirs, shared_dirs};
use super::holds::{Holds, hold_file};
use super::{FORMAT, StateOwner, StateVersion};
use crate::directory::datadir::META_FILE;
use crate::directory::partition_store::{
    OpenFiles, PartitionStore, PublishedFile, PublishedState, StateFile, StateGroup,
};
use crate::planted_bugs::{PlantedBug, is_planted};
use crate::process::clock::{Clock, SystemClock};
use crate::process::disk_files::unreadable;
use crate::process::store_runtime::StoreRuntime;

/// Versions of a group that stay in the store: the last, and one for a process that reads it while it is replaced.
const VERSIONS_KEPT: usize = 2;
/// Bytes of a file that are read at once.
const READ_BYTES: u64 = 8 << 20;

/// The state of the partitions of a data directory in an object store.
pub struct ObjectPartitionStore {
    objects: ObjectDirectory,
    runtime: Mutex<StoreRuntime>,
    /// Disk of the data directory, with files as they are stored.
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    owner: StateOwner,
    owned: Mutex<BTreeMap<StateGroup, OwnedGroup>>,
    /// Number of files that this process has begun to upload.
    uploads: AtomicU64,
    holds: Holds,
    clock: Arc<dyn Clock>,
}

/// A group that this process owns.
struct OwnedGroup {
    epoch: u64,
    /// Place of the last version that it has published.
    at: Option<(Offset, u64)>,
    /// Number of versions that it has begun.
    versions: u64,
    /// Those of them that are published and kept, by name, oldest first.
    published: Vec<(String, StateVersion)>,
    /// True if nothing of former owners is left.
    is_alone: bool,
}

impl ObjectPartitionStore {
    /// Creates the store of the data directory `dir` on `disk`.
    ///
    /// Errors: `Unavailable` when the threads for requests cannot be started.
    pub fn new(
        objects: ObjectDirectory,
        disk: Arc<dyn Disk>,
        dir: PathBuf,
        owner: StateOwner,
    ) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime =
            runtime.map_err(|e| Error::unavailable("cannot start requests to the store").with_source(e))?;
        Ok(Self {
            objects,
            runtime: Mutex::new(StoreRuntime::new(runtime)),
            disk,
            dir,
            owner,
            owned: Mutex::default(),
            uploads: AtomicU64::new(0),
            holds: Holds::default(),
            clock: Arc::new(SystemClock),
        })
    }

    /// Replaces the clock of the machine.
    pub fn with_clock(self, clock: Arc<dyn Clock>) -> Self {
        Self { clock, ..self }
    }

    /// Returns the store of a data directory of this identity with so many partitions.
    pub fn with_id(mut self, id: &str, partitions: u32) -> Self {
        self.owner = StateOwner { id: id.to_owned(), partitions, ..self.owner };
        self
    }

    fn run<T>(&self, request: impl Future<Output = Result<T>>) -> Result<T> {
        self.runtime.lock().block_on(request)
    }

    /// Returns the newest owner of a group, with its epoch.
    ///
    /// Errors: `Corrupt`, `Unavailable`.
    pub(super) fn newest_owner(&self, group: StateGroup) -> Result<Option<(u64, StateOwner)>> {
        let names = self.run(self.objects.list(&format!("{}/owners", group.name())))?;
        let Some(name) = names.last() else { return Ok(None) };
        let Some(epoch) = number_of(name) else { return Err(self.foreign(name)) };
        Ok(Some((epoch, self.read(name)?)))
    }

    /// Returns whether the owner of an epoch has ended with everything published.
    ///
    /// Errors: `Unavailable`.
    pub(super) fn is_released(&self, epoch: u64) -> Result<bool> {
        Ok(self.run(self.objects.read(&released(epoch)))?.is_some())
    }

    fn check_owned(&self, group: StateGroup, epoch: u64) -> Result<()> {
        match self.newest_owner(group)? {
            Some((newest, owner)) if newest > epoch => Err(Error::conflict(format!(
                "the state in {} was taken over by a process on {}: this one publishes nothing any more",
                self.objects.display(&group.name()),
                owner.host
            ))),
            _ => Ok(()),
        }
    }

    /// Returns the versions of a group by name, oldest first.
    fn versions(&self, group: StateGroup) -> Result<Vec<String>> {
        self.run(self.objects.list(&format!("{}/versions", group.name())))
    }

    fn read<T: DeserializeOwned>(&self, name: &str) -> Result<T> {
        let missing = || Error::corrupt(format!("{}: the file is missing", self.objects.display(name)));
        let content = self.run(self.objects.read(name))?.ok_or_else(missing)?;
        self.decode(name, &content)
    }

    fn decode<T: DeserializeOwned>(&self, name: &str, content: &[u8]) -> Result<T> {
        serde_json::from_slice(content)
            .map_err(|e| Error::corrupt(format!("{}: {e}", self.objects.display(name))))
    }

    /// Creates a file with content that only this process writes. Returns false if there is another one of that name.
    fn create(&self, name: &str, content: &impl Serialize) -> Result<bool> {
        let content = serde_json::to_vec_pretty(content)
            .map_err(|e| Error::internal("a file of the state cannot be encoded").with_source(e))?;
        if self.run(self.objects.create(name, &content))? {
            return Ok(true);
        }
        // the answer to the first attempt may have been lost
        Ok(self.run(self.objects.read(name))?.is_some_and(|found| found == content))
    }

    fn foreign(&self, name: &str) -> Error {
        Error::corrupt(format!("{}: is not a file of a state", self.objects.display(name)))
    }

    /// Uploads a file, unless the version before has the same.
    fn upload(
        &self,
        group: StateGroup,
        epoch: u64,
        file: &StateFile,
        before: Option<&StateVersion>,
    ) -> Result<PublishedFile> {
        let same_name = before.and_then(|version| version.files.iter().find(|one| one.name == file.name));
        let same = same_name.filter(|one| one.bytes == file.bytes);
        if let Some(same) = same.filter(|_| file.grows) {
            return Ok(same.clone());
        }
        let path = self.dir.join(&file.name);
        if let Some(same) = same
            && same.crc32c == checksum(file.file.clone(), file.bytes).map_err(|e| unreadable(&path, e))?
        {
            return Ok(same.clone());
        }
        let number = self.uploads.fetch_add(1, Ordering::Relaxed);
        let short = file.name.rsplit('/').next().unwrap_or_default();
        let object = format!("{}/files/{epoch:010}/{number}-{short}", group.name());
        let mut reader = FileReader::new(file.file.clone());
        let (mut at, mut crc32c) = (0, 0);
        let mut next = |most: usize| {
            let piece = read_piece(&mut reader, (most as u64).min(file.bytes - at));
            let piece = piece.map_err(|e| unreadable(&path, e))?;
            at += piece.len() as u64;
            crc32c = crc32c::crc32c_append(crc32c, &piece);
            Ok(piece)
        };
        self.run(self.objects.upload(&object, &mut next))?;
        Ok(PublishedFile { name: file.name.clone(), object, bytes: at, crc32c })
    }

    /// Removes versions that are not kept, and the files that only they name; when there are enough of its own, also those of former
    /// owners. Nothing is removed while a reader holds it.
    fn remove_old(&self, group: StateGroup, owned: &mut OwnedGroup) -> Result<()> {
        if self.run(self.holds.look(&self.objects, self.clock.monotonic()))? {
            return Ok(());
        }
        if owned.published.len() >= VERSIONS_KEPT && !owned.is_alone {
            let (last, earlier) = (format!("-{:010}.json", owned.epoch), format!("-{:010}_", owned.epoch));
            let is_own = |name: &String| name.ends_with(&last) || name.contains(&earlier);
            let versions = self.versions(group)?.into_iter().filter(|name| !is_own(name));
            let own = format!("{}/files/{:010}/", group.name(), owned.epoch);
            let files = self.run(self.objects.list(&format!("{}/files", group.name())))?;
            let files = files.into_iter().filter(|name| *name < own);
            versions.chain(files).try_for_each(|name| self.run(self.objects.remove(&name)))?;
            owned.is_alone = true;
        }
        while owned.published.len() > VERSIONS_KEPT {
            let (name, version) = owned.published.remove(0);
            let kept = owned.published.iter().flat_map(|(_, version)| &version.files);
            let kept: BTreeSet<&str> = kept.map(|file| file.object.as_str()).collect();
            let dropped = version.files.iter().map(|file| file.object.as_str());
            let dropped = dropped.filter(|object| !kept.contains(object));
            std::iter::once(name.as_str())
                .chain(dropped)
                .try_for_each(|name| self.run(self.objects.remove(name)))?;
        }
        Ok(())
    }

    fn check_format(&self, name: &str, version: StateVersion) -> Result<StateVersion> {
        match version.format == FORMAT {
            true => Ok(version),
            false => Err(Error::invalid(format!(
                "{}: has format {}, and this program knows {FORMAT}: use the version that wrote it",
                self.objects.display(name),
                version.format
            ))),
        }
    }

    /// Compares the number and the checksum of bytes that were read with those that were published.
    fn check_content(&self, file: &PublishedFile, (bytes, crc32c): (u64, u32)) -> Result<()> {
        match (bytes, crc32c) == (file.bytes, file.crc32c) {
            true => Ok(()),
            false => Err(Error::corrupt(format!(
                "{}: is damaged: expected {} bytes with the checksum {:08x}, found {bytes} with {crc32c:08x}",
                self.objects.display(&file.object),
                file.bytes,
                file.crc32c
            ))),
        }
    }

    /// Makes a file in the directory the one that was published.
    fn download(&self, file: &PublishedFile) -> Result<()> {
        let path = self.dir.join(&file.name);
        let there = self.disk.open(&path).and_then(|found| Ok((found.len()?, found)));
        if let Ok((bytes, found)) = there
            && bytes == file.bytes
            && checksum(found, bytes).is_ok_and(|crc32c| crc32c == file.crc32c)
        {
            return Ok(());
        }
        let failed = |e| Error::unavailable(format!("{}: cannot be written", path.display())).with_source(e);
        let parent = path.parent().unwrap_or(Path::new(""));
        create_dir_durably(&*self.disk, parent).map_err(failed)?;
        let temporary = path.with_extension("tmp");
        let written = self.disk.create(&temporary).map_err(failed)?;
        let (mut at, mut crc32c) = (0, 0);
        let mut take = |piece: Bytes| {
            write_all(&*written, at, &mut [IoSlice::new(&piece)]).map_err(failed)?;
            at += piece.len() as u64;
            crc32c = crc32c::crc32c_append(crc32c, &piece);
            Ok(())
        };
        self.run(self.objects.download(&file.object, &mut take))?;
        self.check_content(file, (at, crc32c))?;
        written.sync().map_err(failed)?;
        self.disk.rename(&temporary, &path).map_err(failed)?;
        self.disk.sync_dir(parent).map_err(failed)
    }

    /// Removes files of a group from the directory that a version does not name.
    fn remove_others(&self, group: StateGroup, version: &StateVersion) -> Result<()> {
        let named: BTreeSet<&str> = version.files.iter().map(|file| file.name.as_str()).collect();
        let dirs = match group {
            StateGroup::Directory => shared_dirs(&*self.disk, &self.dir)?,
            StateGroup::Partition(id) => partition_dirs(id).to_vec(),
        };
        let mut present = match group {
            StateGroup::Directory => directory_names(&*self.disk, &self.dir),
            StateGroup::Partition(_) => Vec::new(),
        };
        for dir in dirs {
            present.extend(names_below(&*self.disk, &self.dir, &dir)?);
        }
        for name in present.iter().filter(|name| !named.contains(name.as_str())) {
            let path = self.dir.join(name);
            self.disk.remove(&path).map_err(|e| {
                Error::unavailable(format!("{}: cannot be removed", path.display())).with_source(e)
            })?;
        }
        Ok(())
    }
}

impl PartitionStore for ObjectPartitionStore {
    fn is_shared(&self) -> bool {
        true
    }

    fn claim(&self, group: StateGroup, epoch: u64) -> Result<()> {
        let name = format!("{}/owners/{epoch:010}.json", group.name());
        let is_newest = self.create(&name, &self.owner)?
            && self.newest_owner(group)?.is_some_and(|(newest, _)| newest == epoch);
        if !is_newest {
            return Err(Error::conflict(format!(
                "the state in {} was taken over by another process just now",
                self.objects.display(&group.name())
            )));
        }
        self.owned.lock().insert(
            group,
            OwnedGroup { epoch, at: None, versions: 0, published: Vec::new(), is_alone: false },
        );
        let owners = self.run(self.objects.list(&format!("{}/owners", group.name())))?;
        owners
            .iter()
            .filter(|former| **former < name)
            .try_for_each(|former| self.run(self.objects.remove(former)))
    }

    fn publish(&self, group: StateGroup, at: (Offset, u64), files: OpenFiles<'_>) -> Result<()> {
        let mut owned = self.owned.lock();
        let Some(owned) = owned.get_mut(&group) else {
            // processes that share partitions keep what belongs to none for themselves
            if group == StateGroup::Directory {
                return Ok(());
            }
            return Err(Error::conflict(format!("the state of {} has another owner", group.name())));
        };
        // a partition that stands still
        let is_same = |last: (Offset, u64)| {
            last == at || (is_planted(PlantedBug::PublishOncePerOffset) && last.0 == at.0)
        };
        if group != StateGroup::Directory && owned.at.is_some_and(is_same) {
            // what was held is removed although the partition stands still
            return if self.holds.are_there() { self.remove_old(group, owned) } else { Ok(()) };
        }
        self.check_owned(group, owned.epoch)?;
        let (epoch, number) = (owned.epoch, owned.versions);
        let name = match group {
            StateGroup::Directory => format!("{:020}-{epoch:010}", (epoch << 32) + number),
            StateGroup::Partition(_) => format!("{:020}-{epoch:010}_{number:010}", at.0.0),
        };
        let name = format!("{}/versions/{name}.json", group.name());
        owned.versions += 1;
        let before = owned.published.last().map(|(_, version)| version);
        let files = files()?;
        let uploaded = files.iter().map(|file| self.upload(group, owned.epoch, file, before));
        let version = StateVersion { format: FORMAT, files: uploaded.collect::<Result<_>>()? };
        if self.create(&name, &version)? {
            owned.at = Some(at);
            owned.published.push((name, version));
            // what stays costs room only
            if let Err(error) = self.remove_old(group, owned) {
                tracing::warn!(%error, "files of the state that are not needed any more stay in the store");
            }
        }
        Ok(())
    }

    fn needed_from(&self, id: PartitionId) -> Option<Offset> {
        let newest = self.owned.lock().get(&StateGroup::Partition(id))?.at?.0;
        Some(if self.holds.are_there() { Offset(0) } else { newest })
    }

    fn fetch(&self, group: StateGroup) -> Result<bool> {
        let Some(name) = self.versions(group)?.pop() else { return Ok(false) };
        let version = self.read(&name).and_then(|version| self.check_format(&name, version))?;
        self.remove_others(group, &version)?;
        // the epoch in it says that everything is here
        let (last, first): (Vec<_>, Vec<_>) = version.files.iter().partition(|file| file.name == META_FILE);
        first.into_iter().chain(last).try_for_each(|file| self.download(file))?;
        Ok(true)
    }

    fn newest_state(&self, id: PartitionId) -> Result<Option<PublishedState>> {
        let Some(name) = self.versions(StateGroup::Partition(id))?.pop() else { return Ok(None) };
        let Some(content) = self.run(self.objects.read(&name))? else {
            return Err(Error::not_found(format!("{}: was replaced just now", self.objects.display(&name))));
        };
        let files = self.check_format(&name, self.decode(&name, &content)?)?.files;
        let next = name.rsplit('/').next().and_then(|file| file.split('-').next()?.parse().ok());
        let next = next.map(Offset).ok_or_else(|| self.foreign(&name))?;
        Ok(Some(PublishedState { next, files }))
    }

    fn newest_epoch(&self, id: PartitionId) -> Result<u64> {
        let names = self.run(self.objects.list(&format!("{}/owners", StateGroup::Partition(id).name())))?;
        let newest = names.last().map(|name| number_of(name).ok_or_else(|| self.foreign(name)));
        newest.unwrap_or(Ok(0))
    }

    fn read_published(&self, file: &PublishedFile, take: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let (mut at, mut crc32c) = (0, 0);
        while at < file.bytes {
            let range = at..file.bytes.min(at + READ_BYTES);
            let piece = self.run(self.objects.read_range(&file.object, range))?;
            let Some(piece) = piece.filter(|piece| !piece.is_empty()) else {
                return Err(Error::not_found(format!(
                    "{}: is not needed any more by those who publish it",
                    self.objects.display(&file.object)
                )));
            };
            crc32c = crc32c::crc32c_append(crc32c, &piece);
            at += piece.len() as u64;
            take(&piece)?;
        }
        self.check_content(file, (at, crc32c))
    }

    fn hold(&self, name: &str) -> Result<()> {
        self.run(self.objects.create(&hold_file(name), b"")).map(drop)
    }

    fn end_hold(&self, name: &str) -> Result<()> {
        self.run(self.objects.remove(&hold_file(name)))
    }

    fn release(&self) -> Result<()> {
        let epoch = self.owned.lock().get(&StateGroup::Directory).map(|owned| owned.epoch);
        epoch.map_or(Ok(()), |epoch| self.create(&released(epoch), &self.owner).map(drop))
    }
}

/// Returns the file that says that the owner of an epoch has ended.
fn released(epoch: u64) -> String {
    format!("{}/released/{epoch:010}.json", StateGroup::Directory.name())
}

/// Returns the number in the name of a file.
fn number_of(name: &str) -> Option<u64> {
    name.rsplit('/').next()?.strip_suffix(".json")?.parse().ok()
}

fn read_piece(reader: &mut FileReader, bytes: u64) -> std::io::Result<Bytes> {
    let mut piece = vec![0; bytes as usize];
    reader.read_exact(&mut piece)?;
    Ok(piece.into())
}

fn checksum(file: Arc<dyn DiskFile>, bytes: u64) -> std::io::Result<u32> {
    let mut reader = FileReader::new(file);
    let (mut at, mut crc32c) = (0, 0);
    while at < bytes {
        let piece = read_piece(&mut reader, READ_BYTES.min(bytes - at))?;
        at += piece.len() as u64;
        crc32c = crc32c::crc32c_append(crc32c, &piece);
    }
    Ok(crc32c)
}
