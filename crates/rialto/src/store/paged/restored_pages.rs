//! [`RestoredPages`]: the page file of a database that is being restored.
//!
//! The images come from backups. Each is sealed anew for the new database. If an increment brings a page again, its image
//! overwrites the earlier one in place. That is safe because nothing names the file until the restore is complete.

use std::sync::Arc;

use super::disk_tables::PagesAt;
use super::file_space::{FileAddress, FileSpace, Purpose};
use super::image;
use super::page_file::{PAGE_FILE, PageFile};
use super::page_list::PageList;
use super::page_map::Saved;
use super::page_store;
use super::published::Published;
use crate::error::{Error, Result};
use crate::io::{AlignedBuffer, Disk, Open};

/// The most pages that are written at a time.
const WRITTEN_TOGETHER: usize = 32;

/// See the [module's documentation](self).
pub(crate) struct RestoredPages {
    disk: Arc<dyn Disk>,
    file: PageFile,
    space: FileSpace,
    list: PageList,
    images: Vec<Option<Saved>>,
    /// Images that are not written yet, of adjacent addresses: the first of these, and how many there are.
    buffer: AlignedBuffer,
    run: Option<(FileAddress, usize)>,
}

impl RestoredPages {
    /// For the pages of this list, in a new page file.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn begin(disk: &Arc<dyn Disk>, seed: u64, list: PageList) -> Result<RestoredPages> {
        let file = PageFile::open(&**disk, Open::Create, list.page_bytes, seed)?;
        disk.sync_directory()?;
        let buffer = AlignedBuffer::zeroed(WRITTEN_TOGETHER * list.page_bytes);
        let (disk, space) = (disk.clone(), FileSpace::default());
        Ok(RestoredPages { disk, file, space, list, images: Vec::new(), buffer, run: None })
    }

    /// What the last backup says of the pages.
    pub fn list(&self) -> &PageList {
        &self.list
    }

    /// An increment with this list follows, with pages of the same size. Pages that are not in the list are gone.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn follow(&mut self, list: PageList) -> Result<()> {
        self.flush()?;
        for (page, image) in (0..).zip(&mut self.images) {
            if !list.pages.contains(page)
                && let Some(image) = image.take()
            {
                self.space.give_back(Purpose::Current, image.address);
            }
        }
        self.list = list;
        Ok(())
    }

    /// Adds the image of a page, which must be in the list. The checksum, which is the old database's, is replaced.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn put(&mut self, page: u32, bytes: &[u8]) -> Result<()> {
        if self.images.len() <= page as usize {
            self.images.resize(page as usize + 1, None);
        }
        let address = match self.images[page as usize] {
            Some(image) => image.address,
            None => self.new_address()?,
        };
        let adjoins = self.run.is_some_and(|(first, count)| {
            count < WRITTEN_TOGETHER && u64::from(first.0) + count as u64 == u64::from(address.0)
        });
        if !adjoins {
            self.flush()?;
        }
        let (first, count) = self.run.unwrap_or((address, 0));
        let image = &mut self.buffer[count * bytes.len()..][..bytes.len()];
        image.copy_from_slice(bytes);
        let stamp = image::seal(image, self.file.seed());
        self.images[page as usize] = Some(Saved { address, stamp });
        self.run = Some((first, count + 1));
        Ok(())
    }

    fn new_address(&mut self) -> Result<FileAddress> {
        let run = self.space.take(Purpose::Current, 1);
        let full = || Error::Unsupported { what: "a longer page file".to_owned() };
        run.map(|run| run.first).ok_or_else(full)
    }

    fn flush(&mut self) -> Result<()> {
        let Some((first, count)) = self.run.take() else { return Ok(()) };
        self.file.write(first, &self.buffer[..count * self.file.page_bytes()])
    }

    /// A page of the list whose image has not come.
    pub fn missing(&self) -> Option<u32> {
        let has = |page: u32| self.images.get(page as usize).is_some_and(Option::is_some);
        self.list.pages.numbers().find(|&page| !has(page))
    }

    /// Writes the page map that the home block will name, and syncs. Every page of the list must have been added.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn publish(&mut self) -> Result<PagesAt> {
        self.flush()?;
        let published = Published {
            tables: self.list.tables.clone(),
            images: self.images[..self.list.pages.end() as usize].to_vec(),
        };
        let page_bytes = self.list.page_bytes;
        let at = published.write(page_bytes, |images| {
            let mut written = Vec::new();
            for image in images.chunks_exact_mut(page_bytes) {
                let address = self.new_address()?;
                written.push(Saved { address, stamp: image::seal(image, self.file.seed()) });
                self.file.write(address, image)?;
            }
            Ok(written)
        })?;
        self.file.cut_to(self.space.end())?;
        self.file.sync()?;
        Ok(PagesAt { page_bytes: page_bytes as u32, at })
    }

    /// The restored database has no pages.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn remove(self) -> Result<()> {
        Ok(self.disk.remove(PAGE_FILE)?)
    }
}

/// What is wrong with a page's image, apart from its checksum, if anything is.
pub(crate) fn damage(page: u32, image: &[u8]) -> Option<String> {
    let number = image::page_of(image);
    match number.0 == page {
        true => page_store::damage(image),
        false => Some(format!("expected an image of page {page}, found one of page {}", number.0)),
    }
}
