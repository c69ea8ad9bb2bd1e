use super::*;
use crate::chat::conversation::Origin;
use crate::event::FinishReason;
use std::path::Path;

fn user(text: &str) -> Change {
    Change::User { text: text.into() }
}

fn say(saved: &mut Saved, text: &str, answer: &str) {
    let text_change = Change::Text { ids: vec![1, 2], text: answer.into() };
    let finished = Change::Finished { reason: FinishReason::Eos, totals: Box::default() };
    for change in [user(text), Change::Answer(Box::default()), text_change, finished] {
        saved.record(&change).unwrap();
    }
}

fn folder() -> (tempfile::TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::new(folder.path().join("sessions"));
    (folder, store)
}

fn file(store: &Store, id: &str) -> PathBuf {
    store.path(id).unwrap()
}

#[test]
fn what_was_said_is_there_the_next_day() {
    let (_folder, store) = folder();
    assert!(store.latest().is_none());
    let mut saved = store.begin();
    saved.record(&Change::System { text: Some("be brief".into()) }).unwrap();
    assert!(!store.folder.exists(), "nothing was said yet");
    say(&mut saved, "why is the sky blue?", "Light\nscatters \u{1b} 👍");
    saved.record(&user("really?")).unwrap();
    let before = saved.conversation().clone();
    drop(saved);

    let opened = store.open(&store.latest().unwrap().id).unwrap();
    assert_eq!(opened.notices, [] as [&str; 0]);
    assert_eq!(*opened.saved.conversation(), before);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&file(&store, &before.id)), 0o600);
        assert_eq!(mode(&store.folder), 0o700);
    }
}

/// A full disk, for a moment: what came meanwhile is in the file after the next change.
#[test]
fn what_could_not_be_written_is_written_later() {
    let (_folder, store) = folder();
    let mut saved = store.begin();
    saved.record(&Change::System { text: Some("be brief".into()) }).unwrap();
    say(&mut saved, "one", "1");
    let path = file(&store, &saved.conversation().id);
    let read_only = File::open(&path).unwrap();
    let open = std::mem::replace(&mut saved.file.as_mut().unwrap().file, read_only);
    saved.record(&user("two")).unwrap_err();
    saved.record(&Change::System { text: None }).unwrap_err();
    saved.file.as_mut().unwrap().file = open;
    for change in [Change::Answer(Box::default()), Change::Text { ids: vec![3], text: "2".into() }]
    {
        saved.record(&change).unwrap();
    }
    let before = saved.conversation().clone();
    drop(saved);
    assert_eq!(before.turns.len(), 2);
    assert_eq!(*store.open(&before.id).unwrap().saved.conversation(), before);
}

#[test]
fn undo_and_edits_are_lines_too() {
    let (_folder, store) = folder();
    let mut saved = store.open_or_begin("work").unwrap().saved;
    say(&mut saved, "one", "1");
    say(&mut saved, "two", "2");
    let (undo, text) = saved.conversation().undo().unwrap();
    saved.record(&undo).unwrap();
    assert_eq!(text, "two");
    for change in saved.conversation().edit(0, "uno") {
        saved.record(&change).unwrap();
    }
    let lines = fs::read_to_string(file(&store, "work")).unwrap().lines().count();
    assert_eq!(lines, 1 + 4 + 4 + 1 + 2, "nothing is rewritten");
    let before = saved.conversation().clone();
    drop(saved);
    assert_eq!(*store.open("work").unwrap().saved.conversation(), before);
}

#[test]
fn a_half_written_line_is_dropped_and_the_next_one_is_whole() {
    let (_folder, store) = folder();
    let mut saved = store.open_or_begin("work").unwrap().saved;
    say(&mut saved, "one", "1");
    drop(saved);
    let path = file(&store, "work");
    let whole = fs::read(&path).unwrap();
    let last = whole[..whole.len() - 1].iter().rposition(|&b| b == b'\n').unwrap() + 1;
    // Cut anywhere in the last line: all before it is there.
    for cut in last + 1..whole.len() {
        fs::write(&path, &whole[..cut]).unwrap();
        let mut opened = store.open("work").unwrap();
        assert!(opened.notices[0].contains("half written"), "{:?}", opened.notices);
        let answer = opened.saved.conversation().turns[0].answer.clone().unwrap();
        assert_eq!((answer.text.as_str(), answer.finished), ("1", None));
        opened.saved.record(&user("two")).unwrap();
        drop(opened);
        let opened = store.open("work").unwrap();
        assert!(opened.notices.is_empty());
        assert_eq!(opened.saved.conversation().turns[1].user, "two");
    }
}

#[test]
fn a_damaged_file_is_left_alone_and_goes_on_in_a_fork() {
    let (_folder, store) = folder();
    let mut saved = store.open_or_begin("work").unwrap().saved;
    say(&mut saved, "one", "1");
    drop(saved);
    let path = file(&store, "work");
    let damaged = fs::read_to_string(&path).unwrap() + "\u{0}garbage\n{\"type\":\"user\"}\n";
    fs::write(&path, &damaged).unwrap();
    let refused = store.rename("work", "x").unwrap_err().to_string();
    assert!(refused.contains("left as it is: its file is damaged"), "{refused}");
    let mut opened = store.open("work").unwrap();
    assert!(opened.notices[0].contains("damaged from line 6"), "{:?}", opened.notices);
    say(&mut opened.saved, "two", "2");
    assert_eq!(fs::read_to_string(&path).unwrap(), damaged);
    let fork = opened.saved.conversation();
    assert_eq!(fork.origin, Some(Origin { id: "work".into(), turns: 1 }));
    assert_eq!(fork.turns.len(), 2);
}

#[test]
fn newer_and_foreign_files_are_named_with_the_reason() {
    let (_folder, store) = folder();
    fs::create_dir_all(&store.folder).unwrap();
    let write = |id: &str, text: &[u8]| fs::write(file(&store, id), text).unwrap();
    write("newer", b"{\"type\":\"session\",\"version\":2,\"what\":[]}\n");
    write("empty", b"");
    write("text", b"hello\n");
    write("bytes", &[0xff; 100]);
    fs::create_dir(file(&store, "folder")).unwrap();
    assert!(matches!(store.open("newer"), Err(StoreError::Newer { version: 2, .. })));
    let listing = store.list();
    assert!(listing.sessions.is_empty());
    let ids: Vec<&str> = listing.unreadable.iter().map(|(id, _)| id.as_str()).collect();
    assert_eq!(ids, ["bytes", "empty", "folder", "newer", "text"]);
    assert!(listing.unreadable[3].1.contains("newer version"));
    for name in ["", ".hidden", "../up", "a/b", "ä", "x y", &"x".repeat(65)] {
        assert!(matches!(store.open_or_begin(name), Err(StoreError::BadName(_))), "{name}");
    }
}

/// A fork has a file of its own at once, and the conversation that it comes from stays as it is.
#[test]
fn a_fork_is_there_at_once_and_goes_its_own_way() {
    let (_folder, store) = folder();
    let mut saved = store.open_or_begin("work").unwrap().saved;
    say(&mut saved, "one", "1");
    say(&mut saved, "two", "2");
    let before = fs::read(file(&store, "work")).unwrap();
    let mut fork = store.fork(saved.conversation(), 1);
    fork.keep().unwrap();
    let id = fork.conversation().id.clone();
    let titles = |store: &Store| {
        let mut titles: Vec<String> = store.list().sessions.into_iter().map(|s| s.title).collect();
        titles.sort();
        titles
    };
    assert_eq!(titles(&store), ["fork at turn 1: one", "one"]);
    say(&mut fork, "other", "3");
    drop((saved, fork));
    assert_eq!(fs::read(file(&store, "work")).unwrap(), before);
    let fork = store.open(&id).unwrap().saved.conversation().clone();
    assert_eq!(fork.origin, Some(Origin { id: "work".into(), turns: 1 }));
    let said: Vec<&str> = fork.turns.iter().map(|turn| turn.user.as_str()).collect();
    assert_eq!(said, ["one", "other"]);
    assert_eq!(fork.turns[0].answer.as_ref().unwrap().ids, [1, 2], "the ids came with it");
}

#[test]
fn two_programs_do_not_write_into_one_file() {
    let (_folder, store) = folder();
    let mut first = store.open_or_begin("work").unwrap().saved;
    say(&mut first, "one", "1");
    let mut second = store.open("work").unwrap();
    assert!(second.notices[0].contains("another program has it open"));
    say(&mut second.saved, "from the second", "2");
    say(&mut first, "from the first", "2");
    assert!(matches!(store.delete("work"), Err(StoreError::Kept { .. })));
    assert!(matches!(store.rename("work", "x"), Err(StoreError::Kept { .. })));
    drop(first);
    let opened = store.open("work").unwrap();
    assert_eq!(opened.saved.conversation().turns[1].user, "from the first");
    assert_eq!(second.saved.conversation().turns[1].user, "from the second");
    assert_eq!(store.list().sessions.len(), 2);
}

#[test]
fn listed_searched_renamed_deleted_and_taken_back() {
    let (_folder, store) = folder();
    for (id, text) in [("a", "why is the sky blue"), ("b", "prime numbers, please")] {
        say(&mut store.open_or_begin(id).unwrap().saved, text, "Because of RAYLEIGH");
    }
    store.rename("a", "Sky").unwrap();
    let listing = store.list();
    let find = |query: &str| -> Vec<String> {
        let found = listing.sessions.iter().filter(|summary| summary.matches(query));
        found.map(|summary| summary.title.clone()).collect()
    };
    assert_eq!(find("BLUE rayleigh"), ["Sky"]);
    assert_eq!(find("because").len(), 2);
    assert_eq!(find("PRIME"), ["prime numbers, please"]);

    let deleted = store.delete("a").unwrap();
    assert_eq!(store.list().sessions.len(), 1);
    say(&mut store.open_or_begin("a").unwrap().saved, "another", "x");
    assert!(matches!(store.undelete(&deleted), Err(StoreError::Exists(_))));
    store.delete("a").unwrap();
    store.undelete(&deleted).unwrap();
    assert_eq!(store.open("a").unwrap().saved.conversation().title(), "Sky");
}

#[test]
fn what_cannot_be_written_is_told_and_happens_all_the_same() {
    let folder = tempfile::tempdir().unwrap();
    // A file where the folder should be: nobody can write there, not even root.
    let path = folder.path().join("sessions");
    fs::write(&path, "").unwrap();
    let mut saved = Store::new(&path).begin();
    assert!(saved.record(&user("one")).is_err());
    assert_eq!(saved.conversation().turns.len(), 1);
    fs::remove_file(&path).unwrap();
    // The folder can be made now: the next change writes all of it.
    saved.record(&Change::Answer(Box::default())).unwrap();
    let id = saved.conversation().id.clone();
    drop(saved);
    let turns = Store::new(&path).open(&id).unwrap().saved.conversation().turns.clone();
    assert!(turns[0].answer.is_some());
}
