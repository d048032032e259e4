use super::*;

fn parse(sql: &str) -> Result<Statement> {
    super::parse(sql, &Arc::default())
}

fn utility(sql: &str) -> Statement {
    parse(sql).unwrap_or_else(|error| panic!("{sql}: {error}"))
}

fn code(sql: &str) -> &'static str {
    match parse(sql) {
        Ok(statement) => panic!("{sql} was accepted as {statement:?}"),
        Err(error) => error.sqlstate.code(),
    }
}

#[test]
fn names_are_folded_unless_quoted() {
    let Statement::DropTable { names, if_exists } = utility("DROP TABLE IF EXISTS Foo, \"Foo\", public.Bar")
    else {
        panic!("no drop")
    };
    let texts: Vec<&str> = names.iter().map(|name| name.text.as_str()).collect();
    assert_eq!((texts, if_exists), (vec!["foo", "Foo", "bar"], true));
    assert_eq!(names[1].position, Some(27));
}

/// As in PostgreSQL: otherwise it would be taken for an alias.
#[test]
fn a_word_straight_behind_a_number_is_refused() {
    for sql in
        ["1e", "1abc", "1.5abc", "1e5x", "1.e", ".5e", "1e+", "1.x", "1é", "1from t", "1 where 1in (1)"]
    {
        assert_eq!(code(&format!("select {sql}")), "42601", "{sql}");
    }
    for sql in ["1 e", "1\"e\"", "1e5 x", "1 from t", "1+e from t"] {
        utility(&format!("select {sql}"));
    }
}

#[test]
fn comparisons_are_not_chained() {
    for sql in
        ["1 = 1 = true", "1 < 2 < true", "true and 1 = 1 <> true", "not 1 >= 1 = true", "1 = 2 + 1 = true"]
    {
        assert_eq!(code(&format!("select {sql}")), "42601", "{sql}");
    }
    for sql in ["(1 = 1) = true", "true = (1 = 1)", "1 = 1 and 2 = 2", "1 = 1 is true", "1 in (1) = true"] {
        utility(&format!("select {sql}"));
    }
}

#[test]
fn what_pgbench_sends_is_understood() {
    for sql in [
        "drop table if exists pgbench_accounts, pgbench_branches, pgbench_history, pgbench_tellers",
        "create table pgbench_history(tid int,bid int,aid    int,delta int,mtime timestamp,filler char(22))",
        "create table pgbench_tellers(tid int not null,bid int,tbalance int,filler char(84)) with (fillfactor=100)",
        "truncate table pgbench_accounts, pgbench_branches, pgbench_history, pgbench_tellers",
        "copy pgbench_accounts from stdin with (freeze on)",
        "vacuum analyze pgbench_branches",
        "alter table pgbench_branches add primary key (bid)",
        "insert into pgbench_tellers(tid,bid,tbalance) select tid, (tid - 1) / 10 + 1, 0 from generate_series(1, 10) as tid",
        "UPDATE pgbench_accounts SET abalance = abalance + $1 WHERE aid = $2",
        "INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES ($1, $2, $3, $4, CURRENT_TIMESTAMP)",
        "END",
    ] {
        utility(sql);
    }
}

#[test]
fn options_that_would_do_nothing_here_are_refused_not_ignored() {
    for sql in [
        "select distinct on (a) a from t",
        "select a from t for update of t",
        "select a from t tablesample system (10)",
        "select a from t as x (y)",
        "insert into t as x values (1)",
        "insert into t overriding system value values (1)",
        "create table t (a int) tablespace x",
        "create table t (a int) using heap",
        "create table t (a int collate \"C\")",
        "create table t (a int, exclude using gist (a with =))",
        "create index i on t (a) include (b)",
        "create index i on t (a) with (fillfactor = 50)",
        "create index i on t (a text_ops)",
        "alter table t add primary key (a) include (b)",
        "alter table t add primary key (a) deferrable",
        "rollback and chain",
        "commit prepared 'x'",
        "copy t from stdin (force_null (a))",
        "copy t from stdin where a > 1",
        "vacuum t (a)",
    ] {
        // Where sqlparser does not know PostgreSQL's form, a syntax error refuses the statement as well.
        assert!(matches!(code(sql), "0A000" | "42601"), "{sql}: {}", code(sql));
    }
}

#[test]
fn syntax_errors_are_told_from_what_is_not_built() {
    for sql in [
        "begin foo",
        "commit now",
        "truncate",
        "drop table",
        "set x",
        "copy t",
        "copy t from",
        "vacuum (foo) t",
        "reset",
    ] {
        assert_eq!(code(sql), "42601", "{sql}");
    }
    for sql in [
        "reindex table t",
        "create extension x",
        "alter role x superuser",
        "merge into t using u on true when matched then delete",
    ] {
        assert_eq!(code(sql), "0A000", "{sql}");
    }
}

#[test]
fn deep_nesting_is_an_error_and_no_overflow() {
    let sql = format!("select {}1{}", "(".repeat(5_000), ")".repeat(5_000));
    assert_eq!(code(&sql), "54001");
}

#[test]
fn explain_keeps_places() {
    let error = parse("explain\n select nope nope nope").unwrap_err();
    assert_eq!(error.position, Some(27));
}

/// sqlparser takes some comments for hints, which it keeps beside the statement.
#[test]
fn a_comment_is_a_blank() {
    for sql in [
        "select /*+ x */ 1",
        "select --+ x\n 1",
        "insert /*+ x */ into t values (1)",
        "/*+ x */ select 1 /* */",
    ] {
        assert!(parse(sql).is_ok(), "{sql}");
    }
}

#[test]
fn a_sign_or_a_comment_behind_an_operator_is_no_part_of_it() {
    for operator in ["=", "<>", "!=", "<", "<=", ">", ">=", "+", "*", "/"] {
        for behind in ["-", "+", "- ", "/**/", "/*-*/-", "--\n"] {
            // Two signs are a comment.
            let sql = format!("select a{operator}{behind}5 from t");
            assert!(parse(&sql).is_ok(), "{sql}: {:?}", parse(&sql).err());
        }
    }
    // As in PostgreSQL, these operators do not exist.
    for sql in ["select a%-5 from t", "select a||-5 from t", "select a>@5 from t", "select a<->5 from t"] {
        assert_eq!(code(sql), "0A000", "{sql}");
    }
    for sql in
        ["select a% -5 from t", "select a%/**/5 from t", "select a|| -5 from t", "select a||--\n5 from t"]
    {
        assert!(parse(sql).is_ok(), "{sql}");
    }
}
