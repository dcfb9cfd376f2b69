//! Reading a file that may be anything.

use std::{
    fs::{self, File},
    io::{self, Read},
    path::Path,
};

/// The largest file of credentials: some hundred thousand entries.
const FILE_MAX: u64 = 16 * 1024 * 1024;

/// The content of a regular file of at most 16 MiB; symbolic links are followed. A pipe would be waited for, a device might never end.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    // Before it is opened: opening a pipe waits for somebody to write.
    check(&fs::metadata(path)?)?;
    let file = File::open(path)?;
    // It may have been replaced between the two.
    check(&file.metadata()?)?;
    let mut content = Vec::new();
    file.take(FILE_MAX + 1).read_to_end(&mut content)?;
    if content.len() as u64 > FILE_MAX { Err(too_large()) } else { Ok(content) }
}

fn check(metadata: &fs::Metadata) -> io::Result<()> {
    if metadata.is_dir() {
        return Err(io::Error::new(io::ErrorKind::IsADirectory, "it is a directory"));
    }
    if !metadata.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    if metadata.len() > FILE_MAX { Err(too_large()) } else { Ok(()) }
}

fn too_large() -> io::Error {
    io::Error::new(io::ErrorKind::FileTooLarge, format!("it is larger than {} MiB", FILE_MAX / 1024 / 1024))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{os::unix::fs::symlink, process::Command};

    #[test]
    fn only_regular_files_of_a_bounded_size_are_read() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::write(at("file"), "content").unwrap();
        symlink("file", at("link")).unwrap();
        symlink(at("link"), at("link of a link")).unwrap();
        for name in ["file", "link", "link of a link"] {
            assert_eq!(read(&at(name)).unwrap(), b"content", "{name}");
        }
        assert!(Command::new("mkfifo").arg(at("pipe")).status().unwrap().success());
        symlink(at("pipe"), at("link to a pipe")).unwrap();
        File::create(at("large")).unwrap().set_len(FILE_MAX + 1).unwrap();
        let table = [
            (at("pipe"), "it is not a regular file"),
            (at("link to a pipe"), "it is not a regular file"),
            ("/dev/zero".into(), "it is not a regular file"),
            (directory.path().to_owned(), "it is a directory"),
            (at("large"), "it is larger than 16 MiB"),
        ];
        for (path, why) in table {
            assert_eq!(read(&path).unwrap_err().to_string(), why, "{}", path.display());
        }
    }
}
