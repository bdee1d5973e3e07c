//! The root file system of an image, its layers merged: as one tar, or unpacked in a directory.

use std::fs;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::Path;

use crate::error::{Context as _, Error, Result};
use crate::event::Cancel;
use crate::image::archive::staging::Staged;
use crate::image::digest::Digest;
use crate::image::layer::merged::write_merged;
use crate::image::layer::stack::LayerStack;
use crate::image::layer::unpack::{Lost, unpack_own, unpack_plain};
use crate::image::layer::{Limits, WALKING_STACK};
use crate::image::store::Store;
use crate::userns;

pub(super) fn write_tar(
    store: &Store,
    diff_ids: &[Digest],
    dest: &Path,
    source_date_epoch: Option<i64>,
    cancel: &Cancel,
) -> Result<()> {
    let stack = store.stack(diff_ids)?;
    let staged = Staged::beside(dest)?;
    let mut out = BufWriter::with_capacity(1 << 20, staged.create_file()?);
    write_merged(&stack, &LayerStack::default(), &mut out, source_date_epoch, &Limits::default(), cancel)?;
    out.flush().and_then(|()| out.get_ref().sync_all()).unusable(|| "cannot finish the file".to_owned())?;
    staged.put_in_place()
}

pub(super) fn write_directory(
    store: &Store,
    diff_ids: &[Digest],
    dest: &Path,
    source_date_epoch: Option<i64>,
    cancel: &Cancel,
) -> Result<Option<String>> {
    match fs::read_dir(dest) {
        Ok(mut entries) => {
            if entries.next().is_some() {
                return Err(Error::bad_input("the directory is not empty")
                    .hint("choose a destination that is empty or does not exist"));
            }
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(Error::bad_input("the destination is not a directory that can be read").cause(e)),
    }
    if !rustix::process::geteuid().is_root() {
        return Err(Error::unusable("only root can give files the owners that they have in the image")
            .hint("write type=tar, or run as root"));
    }
    let stack = store.stack(diff_ids)?;
    let staged = Staged::beside(dest)?;
    staged.create_dir()?;
    let lost = copy_tree(&stack, staged.path(), source_date_epoch, cancel)?;
    if let Some(root) = stack.root() {
        let meta = root.metadata()?.stat;
        let owner = userns::current().is_initial().then_some((meta.st_uid, meta.st_gid));
        owner
            .map_or(Ok(()), |(uid, gid)| chown(staged.path(), Some(uid), Some(gid)))
            .and_then(|()| fs::set_permissions(staged.path(), fs::Permissions::from_mode(meta.st_mode & 0o7777)))
            .unusable(|| "cannot set the owner of the root directory".to_owned())?;
    }
    let synced = fs::File::open(staged.path()).and_then(|dir| Ok(rustix::fs::syncfs(dir)?));
    synced.unusable(|| "cannot sync the file system".to_owned())?;
    staged.put_in_place()?;
    Ok(told(&lost))
}

/// What an ordinary user gets otherwise than it is in the image.
fn told(lost: &Lost) -> Option<String> {
    let parts = [
        (lost.owners, "of other users or with set-user-ID bits are yours, without the bits"),
        (lost.devices, "that are devices are left out"),
        (lost.attributes, "have no capabilities or other attributes of root's"),
    ];
    let parts: Vec<String> =
        parts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect();
    (!parts.is_empty()).then(|| format!("files: {}; type=tar keeps everything", parts.join(", ")))
}

/// Through a pipe, so that there is one way to write a tree and one to unpack it.
fn copy_tree(stack: &LayerStack, into: &Path, source_date_epoch: Option<i64>, cancel: &Cancel) -> Result<Lost> {
    // What a user writes for themselves should be theirs, not that of ids that only namespaces know.
    let unpack = if userns::current().is_initial() { unpack_plain } else { unpack_own };
    let (mut reader, writer) = io::pipe().unusable(|| "cannot create a pipe".to_owned())?;
    std::thread::scope(|scope| {
        let deep = std::thread::Builder::new().stack_size(WALKING_STACK);
        let writing = deep.spawn_scoped(scope, move || {
            let mut out = BufWriter::with_capacity(256 << 10, Pipe { writer, reader_is_gone: false });
            let written =
                write_merged(stack, &LayerStack::default(), &mut out, source_date_epoch, &Limits::default(), cancel)
                    .and_then(|_| out.flush().unusable(|| "cannot write to a pipe".to_owned()));
            (written, out.into_parts().0.reader_is_gone)
        });
        let writing = writing.unusable(|| "cannot start a thread".to_owned())?;
        let unpacked = unpack(&mut reader, into, &Limits::default(), cancel);
        drop(reader);
        let (written, reader_is_gone) =
            writing.join().unwrap_or_else(|_| (Err(Error::failed("the thread that reads the layers died")), false));
        // Of two errors one is only the other's echo.
        if reader_is_gone { unpacked.map(|u| u.lost) } else { written.and(unpacked.map(|u| u.lost)) }
    })
}

struct Pipe {
    writer: io::PipeWriter,
    reader_is_gone: bool,
}

impl Write for Pipe {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.writer.write(buf).inspect_err(|e| self.reader_is_gone |= e.kind() == io::ErrorKind::BrokenPipe)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
