use kendall_testing::namespace::{Ballast, on_a_small_disk};

use super::*;
use crate::digest::Function;

fn options(folder: &Path, quota: u64) -> StoreOptions {
    StoreOptions { folder: folder.to_owned(), quota, lanes: 1 }
}

fn content(number: u32, length: usize) -> Content {
    let mut bytes = vec![0; length];
    let pattern = number.to_le_bytes();
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = pattern[at % 4] ^ at.to_le_bytes()[1];
    }
    let hash = Function::Sha256.hash(&bytes);
    Content::plain(Key { kind: Kind::Blob, function: Function::Sha256, hash }, bytes.into())
}

fn read(store: &Store, key: &Key) -> Option<Bytes> {
    let entry = store.get(key, store.moment())?;
    store.read(key, entry).unwrap()
}

fn disk(folder: &Path) -> u64 {
    let sizes = |part: &str| -> u64 {
        std::fs::read_dir(folder.join(part))
            .unwrap()
            .map(|entry| entry.unwrap().metadata().unwrap().len())
            .sum()
    };
    sizes("segments") + sizes("files")
}

#[test]
fn what_was_put_is_there_after_a_stop_and_after_a_death() {
    let folder = tempfile::tempdir().unwrap();
    let contents: Vec<Content> =
        [0, 1, 900, 65_536, 65_537, 300_000, 3_000_000].map(|n| content(7, n)).to_vec();
    for close in [true, false] {
        let store = Store::open(&options(folder.path(), 64 << 20)).unwrap();
        store.put_all(0, &contents).unwrap();
        if close {
            store.close();
        }
        drop(store);
        let store = Store::open(&options(folder.path(), 64 << 20)).unwrap();
        for content in &contents {
            assert_eq!(read(&store, &content.key).as_ref(), Some(&content.bytes[0]));
        }
        assert_eq!(store.bytes()[0], disk(folder.path()), "what is counted is what is there");
    }
}

#[test]
fn a_record_cut_off_by_a_death_is_a_miss_and_the_rest_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(&options(folder.path(), 64 << 20)).unwrap();
    let [first, last] = [content(1, 5000), content(2, 5000)];
    store.put(0, &first).unwrap();
    store.put(0, &last).unwrap();
    drop(store);
    let path = segment::path(folder.path(), 1);
    let whole = std::fs::read(&path).unwrap();
    for cut in [whole.len() - 1, whole.len() - 5000, whole.len() - 5079, whole.len() - 5081] {
        std::fs::write(&path, &whole[..cut]).unwrap();
        discard(&segment::heads_path(folder.path(), 1));
        let store = Store::open(&options(folder.path(), 64 << 20)).unwrap();
        assert_eq!(read(&store, &last.key), None);
        let expected = (cut > 5080).then_some(&first.bytes[0]);
        assert_eq!(read(&store, &first.key).as_ref(), expected);
    }
}

/// Each byte of a record, damaged on disk, under a running store: never a wrong byte.
#[test]
fn a_damaged_byte_is_a_miss_for_whole_reads_and_an_error_for_readers() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(&options(folder.path(), 64 << 20)).unwrap();
    let contents = [content(1, 3000), content(2, 70_000), content(3, 2_000_000)];
    let mut damaged = 0;
    for (index, content) in contents.iter().enumerate() {
        for share in 0..20 {
            store.put(0, content).unwrap();
            let entry = store.get(&content.key, 1).unwrap();
            let (path, start) = match entry.place {
                Place::Segment { segment, offset } => {
                    (segment::path(folder.path(), segment), u64::from(offset))
                }
                Place::File { number } => (store.0.file_path(number), 0),
            };
            let at = start + record_bytes(entry.stored) * share / 20 + index as u64;
            let file = File::options().read(true).write(true).open(path).unwrap();
            let byte = record::read_at(&file, at, 1).unwrap();
            std::os::unix::fs::FileExt::write_all_at(&file, &[byte[0] ^ 4], at).unwrap();
            if share % 2 == 0 {
                assert_eq!(read(&store, &content.key), None, "byte {at}");
            } else {
                let reader = store.open_reader(&content.key, entry).unwrap();
                let mut offset = 0;
                let sound = reader.is_some_and(|reader| {
                    loop {
                        match reader.read(offset, 10_000) {
                            Err(ReadError::Damaged) => break false,
                            Err(other) => panic!("{other}"),
                            Ok(bytes) if bytes.is_empty() => break true,
                            Ok(bytes) => {
                                let from = usize::try_from(offset).unwrap();
                                assert_eq!(bytes, content.bytes[0][from..from + bytes.len()]);
                                offset += bytes.len() as u64;
                            }
                        }
                    }
                });
                assert!(!sound, "byte {at}");
            }
            assert_eq!(store.get(&content.key, 1), None, "it is gone, so that it is put again");
            damaged += 1;
            assert_eq!(store.counts().damaged.get(), damaged);
        }
    }
}

#[test]
fn the_quota_holds_at_every_moment_and_the_least_recently_used_go() {
    let folder = tempfile::tempdir().unwrap();
    let quota = 4 << 20;
    let store = Store::open(&options(folder.path(), quota)).unwrap();
    let kept = content(0, 2000);
    store.put(0, &kept).unwrap();
    let sizes = [100, 1000, 30_000, 200_000];
    for number in 1..3000_u32 {
        store.put(0, &content(number, sizes[number as usize % 4])).unwrap();
        assert!(read(&store, &kept.key).is_some(), "it is used all the time ({number})");
        if number % 50 == 0 {
            let [used, alive, _] = store.bytes();
            assert_eq!(used, disk(folder.path()), "{number}");
            assert!(alive <= used && used <= quota, "{alive} {used}");
        }
    }
    assert!(store.counts().evicted.get() > 1000);
    let mut recent = 0;
    while read(&store, &content(2999 - recent, sizes[(2999 - recent) as usize % 4]).key).is_some() {
        recent += 1;
    }
    let oldest = (1..2999 - recent)
        .find(|n| read(&store, &content(*n, sizes[*n as usize % 4]).key).is_some());
    assert_eq!(oldest, None, "{recent} recent ones are there, and none before them");
    assert!(recent > 20, "{recent}");
    drop(store);
    // Opened again with less, it is within that at once.
    let store = Store::open(&options(folder.path(), quota / 2)).unwrap();
    assert!(disk(folder.path()) <= quota / 2);
    assert_eq!(store.bytes()[0], disk(folder.path()));
}

/// The heads of a segment of empty contents are as long as the segment.
#[test]
fn the_quota_holds_also_where_contents_are_next_to_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let quota = 4 << 20;
    let options = StoreOptions { folder: folder.path().to_owned(), quota, lanes: 2 };
    let store = Store::open(&options).unwrap();
    for number in 0..600_u32 {
        let contents: Vec<Content> = (0..100).map(|n| content(number * 100 + n, 4)).collect();
        store.put_all(number as usize, &contents).unwrap();
        if number % 20 == 0 {
            assert!(disk(folder.path()) <= quota, "{}", disk(folder.path()));
        }
    }
    assert!(store.counts().evicted.get() > 0);
    assert_eq!(store.bytes()[0], disk(folder.path()));
}

#[test]
fn what_is_alive_moves_on_when_its_segment_is_mostly_dead() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(&options(folder.path(), 8 << 20)).unwrap();
    // One of ten is used again and again: it survives in segments of which the rest dies.
    let warm: Vec<Content> = (0..40).map(|n| content(1_000_000 + n, 20_000)).collect();
    for round in 0..400_u32 {
        for n in 0..9 {
            store.put(0, &content(round * 9 + n, 20_000)).unwrap();
        }
        store.put(0, &warm[round as usize % 40]).unwrap();
        for content in warm.iter().take(round as usize + 1) {
            assert_eq!(read(&store, &content.key).as_ref(), Some(&content.bytes[0]));
        }
    }
    assert!(store.counts().compacted_bytes.get() > 0);
    assert_eq!(store.bytes()[0], disk(folder.path()));
}

#[test]
fn of_two_results_the_later_one_counts_also_after_a_start() {
    let folder = tempfile::tempdir().unwrap();
    let key = Key { kind: Kind::Result, function: Function::Sha256, hash: [5; 32] };
    let put = |store: &Store, text: &'static str| {
        store.put(0, &Content::plain(key, Bytes::from_static(text.as_bytes()))).unwrap();
    };
    let store = Store::open(&options(folder.path(), 64 << 20)).unwrap();
    put(&store, "older");
    put(&store, "later");
    drop(store);
    let store = Store::open(&options(folder.path(), 64 << 20)).unwrap();
    assert_eq!(read(&store, &key).unwrap(), "later");
    put(&store, "latest");
    let entry = store.get(&key, 1).unwrap();
    assert!(store.0.index.remove(&key, entry.place));
    store.0.bury(&entry);
    drop(store);
    let store = Store::open(&options(folder.path(), 64 << 20)).unwrap();
    assert_eq!(read(&store, &key), None, "none that was replaced comes back");
}

#[test]
fn a_folder_serves_one_process_and_a_quota_has_a_least() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(&options(folder.path(), 64 << 20)).unwrap();
    let second = Store::open(&options(folder.path(), 64 << 20)).unwrap_err();
    assert!(matches!(second, StoreError::Taken(crate::folder::FolderError::InUse(_))));
    drop(store);
    let small = Store::open(&options(folder.path(), 1000)).unwrap_err();
    assert!(matches!(small, StoreError::Quota { quota: 1000, .. }));
    let store = Store::open(&options(folder.path(), 2 << 20)).unwrap();
    let large = content(1, 2 << 20);
    assert!(matches!(store.put(0, &large), Err(PutError::TooLarge { .. })));
    assert_eq!(store.bytes()[0], disk(folder.path()), "nothing is left of it");
}

/// Space on disk is taken ahead of what comes, but never more than has come: an announcement alone takes none.
#[test]
fn a_large_content_takes_room_as_it_comes() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(&options(folder.path(), 64 << 20)).unwrap();
    let mut spill = Spill::new(&store, Some(40 << 20)).unwrap();
    let piece = Bytes::from(vec![7; 1 << 20]);
    for came in 1..=20_u64 {
        spill.write(std::slice::from_ref(&piece)).unwrap();
        let used = store.bytes()[0] - HEAD as u64;
        assert!((came << 20..=came << 21).contains(&used), "{used} bytes for {came} MiB");
        assert_eq!(disk(folder.path()), (came << 20) + HEAD as u64, "its length is what came");
    }
    drop(spill);
    assert_eq!((store.bytes()[0], disk(folder.path())), (0, 0));
    // To its end, in pieces that divide nothing evenly: counted is what is there.
    let whole = content(9, 10_000_000);
    let mut spill = Spill::new(&store, Some(10_000_000)).unwrap();
    for start in (0..10_000_000).step_by(300_007) {
        let piece = whole.bytes[0].slice(start..(start + 300_007).min(10_000_000));
        spill.write(&[piece]).unwrap();
    }
    spill.keep(whole.key, 10_000_000, false).unwrap();
    assert_eq!(store.bytes()[0], disk(folder.path()));
    assert_eq!(read(&store, &whole.key).as_ref(), Some(&whole.bytes[0]));
}

/// A store with small and large contents on a disk of 24 MiB, under a quota that it does not hold, and the contents.
fn on_a_disk_of_24_mib(disk: &Path) -> (Store, Vec<Content>) {
    let mut kept: Vec<Content> = (0..40).map(|number| content(number, 200_000)).collect();
    kept.push(content(1_000, 700_000));
    let store = Store::open(&options(&disk.join("cache"), 256 << 20)).unwrap();
    store.put_all(0, &kept).unwrap();
    (store, kept)
}

/// Puts contents of all sizes on a disk that holds `held` bytes, of which no more goes than is promised: space for three
/// segments stays free, and of the rest an eighth, or what two open segments may hold of the dead, which nothing wins
/// back before they are sealed; then what is alive in one segment, which a full disk has no space to move; and the last
/// content that goes may be larger than what is missing.
fn goes_on(store: &Store, held: u64) {
    let segment = store.0.small;
    let limit = held - 3 * segment;
    let least = limit - (limit / 8).max(2 * segment) - segment - 700_000;
    for number in 0..100 {
        let size = [1_000, 200_000, 700_000][number as usize % 3];
        let content = content(2_000 + number, size);
        store.put(0, &content).unwrap();
        assert_eq!(read(store, &content.key).as_ref(), Some(&content.bytes[0]), "{number}");
        let [used, alive, _] = store.bytes();
        assert!(alive + size as u64 > least, "{number}: {alive} of {held} stay");
        assert!(used <= held, "{number}: {used} of {held}");
    }
    assert!(store.counts().evicted.get() > 0);
}

/// Others filled the disk under a store that died with a segment open: it opens, serves all that it has, and frees space
/// for what comes.
#[test]
fn a_store_on_a_full_disk_opens_serves_and_evicts() {
    let test = "cache::store::tests::a_store_on_a_full_disk_opens_serves_and_evicts";
    let Some(disk) = on_a_small_disk(test, "24m") else { return };
    let (store, kept) = on_a_disk_of_24_mib(&disk);
    drop(store);
    let ballast = Ballast::fill(&disk, 0);
    let store = Store::open(&options(&disk.join("cache"), 256 << 20)).unwrap();
    for content in &kept {
        assert_eq!(read(&store, &content.key).as_ref(), Some(&content.bytes[0]));
    }
    goes_on(&store, store.bytes()[0]);
    // And it uses the space that comes back.
    ballast.remove();
    store.0.follow();
    let evicted = store.counts().evicted.get();
    for number in 0..30 {
        store.put(0, &content(3_000 + number, 300_000)).unwrap();
    }
    assert_eq!(store.counts().evicted.get(), evicted);
}

/// Others fill the disk under a running store, which learns that from a write that fails.
#[test]
fn a_store_whose_disk_fills_up_evicts_what_a_write_needs() {
    let test = "cache::store::tests::a_store_whose_disk_fills_up_evicts_what_a_write_needs";
    let Some(disk) = on_a_small_disk(test, "24m") else { return };
    let (store, _) = on_a_disk_of_24_mib(&disk);
    let _ballast = Ballast::fill(&disk, 0);
    let held = store.bytes()[0];
    goes_on(&store, held);
    let full = store.counts().disk_full.get();
    assert!((1..=3).contains(&full), "the disk was found full {full} times");
}
