//! stub
pub(crate) fn load_file_name(n: u64) -> String { format!("load-{n:010}") }
pub(crate) fn write_load_file(_: &dyn crate::io::Disk, _: u128, _: u64, _: &crate::store::memory::Heap) -> crate::io::DiskResult<()> { Ok(()) }
