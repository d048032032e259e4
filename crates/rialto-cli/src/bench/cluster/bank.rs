//! [`Bank`]: the tables, and the transfers that clients draw.

use rialto::io::Random;

/// Accounts of a branch. All rows of a branch lie in one partition.
pub const ACCOUNTS_PER_BRANCH: u32 = 10;
/// What is on an account at first.
pub const BALANCE: i64 = 1_000;
const AMOUNT_MAX: u64 = 100;

/// The definitions of the tables. The first column of a primary key says in which partition a row lies.
pub const TABLES: [&str; 2] = [
    "CREATE TABLE IF NOT EXISTS bench_accounts (branch int, number int, balance bigint NOT NULL, PRIMARY KEY (branch, number))",
    "CREATE TABLE IF NOT EXISTS bench_ledger (branch int, run bigint, client int, number bigint, account int NOT NULL, \
     to_branch int NOT NULL, to_account int NOT NULL, amount bigint NOT NULL, PRIMARY KEY (branch, run, client, number))",
];

/// The bank, in one run of the program.
#[derive(Debug, Clone, Copy)]
pub struct Bank {
    /// The number of accounts.
    pub accounts: u32,
    /// The run's number, which the rows have that it adds to the ledger.
    pub run: u64,
}

/// A transfer from one account to another, by their numbers among all accounts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transfer {
    from: u32,
    to: u32,
    amount: u64,
}

impl Bank {
    /// The number of branches.
    pub fn branches(self) -> u32 {
        self.accounts / ACCOUNTS_PER_BRANCH
    }

    /// The statement that fills the accounts.
    pub fn filling(accounts: u32) -> String {
        format!(
            "INSERT INTO bench_accounts SELECT i / {ACCOUNTS_PER_BRANCH}, i % {ACCOUNTS_PER_BRANCH}, {BALANCE} \
             FROM generate_series(0, {}) AS i",
            accounts - 1
        )
    }

    /// What all accounts have together, always.
    pub fn sum(self) -> i128 {
        i128::from(self.accounts) * i128::from(BALANCE)
    }

    /// Draws a transfer between two accounts; if a share in percent is given, so many of these are between two branches.
    pub fn draw(self, random: &mut Random, remote_pct: Option<u8>) -> Transfer {
        let (all, few) = (u64::from(self.accounts), u64::from(ACCOUNTS_PER_BRANCH));
        let from = random.below(all);
        let branch = from - from % few;
        let to = match remote_pct {
            // Another one, of all.
            None => (from + 1 + random.below(all - 1)) % all,
            // One behind this branch, going round.
            Some(percent) if random.chance(u64::from(percent), 100) => {
                (branch + few + random.below(all - few)) % all
            }
            // Another one of this branch.
            Some(_) => branch + (from + 1 + random.below(few - 1)) % few,
        };
        let number = |account: u64| u32::try_from(account).expect("there are fewer accounts");
        Transfer { from: number(from), to: number(to), amount: 1 + random.below(AMOUNT_MAX) }
    }

    /// The statements of a transfer, without its COMMIT.
    pub fn statements(self, transfer: Transfer, client: u32, number: u64) -> String {
        let Transfer { from, to, amount } = transfer;
        let place = |account: u32| (account / ACCOUNTS_PER_BRANCH, account % ACCOUNTS_PER_BRANCH);
        let update = |account: u32, sign: char| {
            let (branch, number) = place(account);
            format!(
                "UPDATE bench_accounts SET balance = balance {sign} {amount} \
                 WHERE branch = {branch} AND number = {number}"
            )
        };
        let mut updates = [(from, '-'), (to, '+')];
        // In one order everywhere, so that two transfers do not wait for each other.
        updates.sort_unstable();
        let [first, second] = updates.map(|(account, sign)| update(account, sign));
        let ((branch, account), (to_branch, to_account)) = (place(from), place(to));
        let run = self.run;
        format!(
            "BEGIN; {first}; {second}; \
             INSERT INTO bench_ledger (branch, run, client, number, account, to_branch, to_account, amount) \
             VALUES ({branch}, {run}, {client}, {number}, {account}, {to_branch}, {to_account}, {amount})"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transfers_are_between_two_accounts_in_as_many_branches_as_told() {
        let seed = Random::seed_from_environment();
        crate::output::tell(format_args!("RIALTO_SEED={seed}"));
        let mut random = Random::new(seed);
        for accounts in [20, 1_000] {
            let bank = Bank { accounts, run: 0 };
            for remote_pct in [None, Some(0), Some(30), Some(100)] {
                let mut remote = 0;
                for _ in 0..10_000 {
                    let Transfer { from, to, amount } = bank.draw(&mut random, remote_pct);
                    assert!(
                        from < accounts && to < accounts && from != to && (1..=AMOUNT_MAX).contains(&amount)
                    );
                    remote += u32::from(from / ACCOUNTS_PER_BRANCH != to / ACCOUNTS_PER_BRANCH);
                }
                let expected = match (remote_pct, accounts) {
                    (Some(percent), _) => f64::from(percent) * 100.0,
                    (None, accounts) => 10_000.0 * f64::from(accounts - 10) / f64::from(accounts - 1),
                };
                let is_near =
                    (f64::from(remote) - expected).abs() <= if remote_pct == Some(0) { 0.0 } else { 300.0 };
                assert!(is_near, "{remote_pct:?} of {accounts} accounts: {remote}");
            }
        }
    }

    #[test]
    fn both_accounts_are_updated_in_their_order() {
        let bank = Bank { accounts: 100, run: 7 };
        let text = bank.statements(Transfer { from: 42, to: 3, amount: 5 }, 1, 9);
        let credit = text.find("balance + 5 WHERE branch = 0 AND number = 3;").expect("it is there");
        let debit = text.find("balance - 5 WHERE branch = 4 AND number = 2;").expect("it is there");
        assert!(credit < debit && text.ends_with("VALUES (4, 7, 1, 9, 2, 0, 3, 5)"), "{text}");
    }
}
