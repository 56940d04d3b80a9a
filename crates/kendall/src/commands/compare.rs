//! `kendall compare`: two result sets, with a verdict for people and an exit code for CI.

mod flags;
mod in_turns;
mod many;
mod sets;
mod verdict;
mod words;

pub(crate) use self::flags::Compare;
use crate::exit::Exit;

impl Compare {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        if self.in_turns.run {
            return self.run_in_turns();
        }
        if self.many.trend || !self.many.more.is_empty() {
            return self.run_many();
        }
        let (before, after) = self.sets()?;
        let page = self.page(&before, std::slice::from_ref(&after))?;
        self.tell(page, self.folder_of_page())
    }
}
