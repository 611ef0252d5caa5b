//! Words that the classifiers know.

macro_rules! keywords {
    ($($name:ident $text:literal)*) => {
        /// A known word; [`Keyword::Unknown`] for all others.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub(crate) enum Keyword { Unknown, $($name),* }

        /// Lower-case spelling and keyword, sorted by spelling.
        static WORDS: &[(&[u8], Keyword)] = &[$(($text, Keyword::$name)),*];
    };
}

keywords! {
    Abort b"abort" All b"all" Alter b"alter" Analyse b"analyse" Analyze b"analyze" As b"as" Atomic b"atomic" Authorization b"authorization"
    Backup b"backup" Begin b"begin"
    Call b"call" Catalog b"catalog" Change b"change" Character b"character" Characteristics b"characteristics" Charset b"charset" Check b"check" Checkpoint b"checkpoint" Checksum b"checksum"
    Close b"close" Cluster b"cluster" Collate b"collate" Comment b"comment" Commit b"commit" Committed b"committed" Connection b"connection" Copy b"copy" Create b"create" Cursor b"cursor"
    Deallocate b"deallocate" Declare b"declare" Default b"default" Deferrable b"deferrable" Delete b"delete" Desc b"desc" Describe b"describe" Discard b"discard" Do b"do" Drop b"drop" Dumpfile b"dumpfile"
    End b"end" Errors b"errors" Event b"event" Execute b"execute" Explain b"explain"
    False b"false" Fetch b"fetch" Flush b"flush" For b"for" Format b"format" FoundRows b"found_rows" From b"from" Function b"function"
    GetLock b"get_lock" Global b"global" Grant b"grant"
    Handler b"handler" Help b"help" Hold b"hold"
    Identity b"identity" Import b"import" In b"in" Infile b"infile" Insert b"insert" Install b"install" Instance b"instance" Into b"into" Isolation b"isolation"
    Key b"key" Kill b"kill"
    LastInsertId b"last_insert_id" Lastval b"lastval" Level b"level" Listen b"listen" Load b"load" Local b"local" Lock b"lock"
    Master b"master" Merge b"merge" Move b"move"
    Names b"names" Next b"next" Nextval b"nextval" No b"no" Not b"not" Notify b"notify"
    Off b"off" On b"on" Only b"only" Open b"open" Optimize b"optimize" Option b"option" Or b"or" Outfile b"outfile"
    Package b"package" Password b"password" Persist b"persist" PersistOnly b"persist_only" Prepare b"prepare" Prepared b"prepared" Preserve b"preserve" Previous b"previous" Procedure b"procedure" Program b"program" Purge b"purge"
    Read b"read" Reassign b"reassign" Refresh b"refresh" Reindex b"reindex" Release b"release" ReleaseAllLocks b"release_all_locks" ReleaseLock b"release_lock" Rename b"rename"
    Repair b"repair" Repeatable b"repeatable" Replace b"replace" Reset b"reset" Resource b"resource" Revoke b"revoke" Role b"role" Rollback b"rollback" RowCount b"row_count"
    Savepoint b"savepoint" Schema b"schema" Security b"security" Seed b"seed" Select b"select" Sequence b"sequence" Serializable b"serializable" Session b"session" Set b"set" SetConfig b"set_config"
    Setval b"setval" Share b"share" Show b"show" Slave b"slave" SqlCalcFoundRows b"sql_calc_found_rows" Start b"start" Statement b"statement" Stdin b"stdin" Stdout b"stdout" Stop b"stop" System b"system"
    Table b"table" Tables b"tables" Temp b"temp" Temporary b"temporary" Time b"time" To b"to" Transaction b"transaction" Trigger b"trigger" True b"true" Truncate b"truncate"
    Uncommitted b"uncommitted" Uninstall b"uninstall" Unlisten b"unlisten" Unlock b"unlock" Unlogged b"unlogged" Update b"update" Use b"use"
    Vacuum b"vacuum" Value b"value" Values b"values" View b"view"
    WarningCount b"warning_count" Warnings b"warnings" With b"with" Work b"work" Write b"write"
    Xa b"xa" Xml b"xml"
    Zone b"zone"
}

/// Longest spelling.
const LONGEST: usize = 19;

/// Places of the hash table; a power of two, at most half full.
const PLACES: usize = 512;
/// An empty place.
const NONE: u8 = u8::MAX;

/// Index in `WORDS` by hash, with linear probing.
static TABLE: [u8; PLACES] = {
    assert!(WORDS.len() < NONE as usize && WORDS.len() * 2 <= PLACES);
    let mut table = [NONE; PLACES];
    let mut i = 0;
    while i < WORDS.len() {
        let mut place = place(fold(WORDS[i].0));
        while table[place] != NONE {
            place = (place + 1) % PLACES;
        }
        table[place] = i as u8;
        i += 1;
    }
    table
};

/// Spellings as `fold` sees them.
static FOLDED: [u64; WORDS.len()] = {
    let mut folded = [0; WORDS.len()];
    let mut i = 0;
    while i < WORDS.len() {
        folded[i] = fold(WORDS[i].0);
        i += 1;
    }
    folded
};

/// First and last bytes of `word` in one number, which with the length tells words of up to eight bytes apart. Setting
/// bit 5 folds letters; among word characters nothing else collides.
#[inline]
const fn fold(word: &[u8]) -> u64 {
    const CASE: u64 = 0x2020_2020_2020_2020;
    let length = word.len();
    let folded = if let Some(first) = word.first_chunk::<8>() {
        u64::from_le_bytes(*first)
    } else if let (Some(first), Some(last)) = (word.first_chunk::<4>(), word.last_chunk::<4>()) {
        u32::from_le_bytes(*first) as u64 | (u32::from_le_bytes(*last) as u64) << 32
    } else if length == 0 {
        0
    } else {
        word[0] as u64 | (word[length / 2] as u64) << 8 | (word[length - 1] as u64) << 16
    };
    folded | CASE
}

#[inline]
const fn place(folded: u64) -> usize {
    (folded.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 55) as usize
}

impl Keyword {
    /// The keyword that `word` spells, in any case.
    #[inline]
    pub(crate) fn find(word: &[u8]) -> Self {
        if word.len() < 2 || word.len() > LONGEST {
            return Self::Unknown;
        }
        let folded = fold(word);
        let mut place = place(folded);
        loop {
            let index = usize::from(TABLE[place]);
            let Some((text, keyword)) = WORDS.get(index) else { return Self::Unknown };
            if FOLDED[index] == folded && text.len() == word.len() && (word.len() <= 8 || text.eq_ignore_ascii_case(word)) {
                return *keyword;
            }
            place = (place + 1) % PLACES;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_found_in_any_case_and_nothing_else_is() {
        for (text, keyword) in WORDS {
            assert_eq!(Keyword::find(text), *keyword);
            assert_eq!(Keyword::find(&text.to_ascii_uppercase()), *keyword);
        }
        for other in [b"".as_slice(), b"selec", b"selects", b"1select", b"sbtest1", "\u{e9}".as_bytes(), &[0xff; 40]] {
            assert_eq!(Keyword::find(other), Keyword::Unknown);
        }
    }

    #[test]
    fn spellings_are_not_longer_than_said() {
        assert_eq!(WORDS.iter().map(|(text, _)| text.len()).max(), Some(LONGEST));
    }
}
