import com.zaxxer.hikari.HikariConfig;
import com.zaxxer.hikari.HikariDataSource;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.Date;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Savepoint;
import java.sql.Statement;
import java.sql.Timestamp;
import java.sql.Types;
import java.time.LocalDateTime;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.TimeUnit;
import org.postgresql.PGConnection;
import org.postgresql.copy.CopyManager;

/** pgjdbc: run with the server's address in PGHOST and PGPORT. */
public class Jdbc {
    static final String ADDRESS = "jdbc:postgresql://" + System.getenv("PGHOST") + ":" + System.getenv("PGPORT");
    static final String URL = ADDRESS + "/bank?user=ann";
    static final String NAME = "pgjdbc " + org.postgresql.util.DriverInfo.DRIVER_VERSION;
    static final String LONG = "select count(*) from generate_series(1, 1000000000000)";
    static int passed;
    static int failed;

    interface Work {
        void run() throws Exception;
    }

    static void equal(String name, Object got, Object expected) {
        if (Objects.deepEquals(got, expected)) {
            passed++;
            return;
        }
        failed++;
        System.out.println("driver: " + NAME + ": " + name + ": expected " + expected + ", got " + got);
    }

    static String sqlstate(Work work) throws Exception {
        try {
            work.run();
            return null;
        } catch (SQLException error) {
            return error.getSQLState();
        }
    }

    static Connection connect() throws SQLException {
        return DriverManager.getConnection(URL);
    }

    static void execute(Connection conn, String sql) throws SQLException {
        try (Statement statement = conn.createStatement()) {
            statement.execute(sql);
        }
    }

    static Object first(Connection conn, String sql) throws SQLException {
        try (Statement statement = conn.createStatement(); ResultSet rows = statement.executeQuery(sql)) {
            rows.next();
            return rows.getObject(1);
        }
    }

    static Object[] row(int number) {
        if (number % 4 == 3) {
            return new Object[] {number, null, null, null, null, null, null, null, null};
        }
        return new Object[] {
            number,
            (long) number << 40,
            "größe " + number,
            new BigDecimal(number + ".25"),
            Timestamp.valueOf(LocalDateTime.of(2026, 1, 31, 12, 30, number % 60, 123_456_000)),
            number % 2 == 0,
            new byte[] {0, (byte) number, -1},
            number / 4.0,
            Date.valueOf("2026-01-" + (10 + number % 20)),
        };
    }

    static final int[] TYPES = {
        Types.INTEGER, Types.BIGINT, Types.VARCHAR, Types.NUMERIC, Types.TIMESTAMP, Types.BOOLEAN, Types.BINARY,
        Types.DOUBLE, Types.DATE,
    };
    static final String INSERT = "insert into jdbc_t values (?, ?, ?, ?, ?, ?, ?, ?, ?)";

    static void bind(PreparedStatement insert, int number) throws SQLException {
        Object[] row = row(number);
        insert.setInt(1, number);
        for (int column = 2; column <= row.length; column++) {
            Object value = row[column - 1];
            if (value == null) {
                insert.setNull(column, TYPES[column - 1]);
            } else if (value instanceof String) {
                insert.setString(column, (String) value);
            } else if (value instanceof byte[]) {
                insert.setBytes(column, (byte[]) value);
            } else {
                insert.setObject(column, value);
            }
        }
    }

    /** More than five executions, after which the driver prepares a statement by name and takes binary results. */
    static void rows() throws Exception {
        try (Connection conn = connect()) {
            execute(conn, "create table jdbc_t (id int primary key, big bigint, name text, amount numeric(12,2), "
                + "at timestamp, ok boolean, raw bytea, ratio double precision, day date)");
            try (PreparedStatement insert = conn.prepareStatement(INSERT)) {
                for (int number = 0; number < 12; number++) {
                    bind(insert, number);
                    equal("insert " + number, insert.executeUpdate(), 1);
                }
            }
            try (PreparedStatement select = conn.prepareStatement("select * from jdbc_t where id = ?")) {
                for (int number = 0; number < 12; number++) {
                    select.setInt(1, number);
                    try (ResultSet found = select.executeQuery()) {
                        equal("row " + number + " is there", found.next(), true);
                        Object[] got = new Object[TYPES.length];
                        for (int column = 0; column < got.length; column++) {
                            got[column] = found.getObject(column + 1);
                        }
                        equal("row " + number, got, row(number));
                    }
                }
            }
            try (PreparedStatement update = conn.prepareStatement("update jdbc_t set name = ? where name = ? and id = ?")) {
                for (int number = 0; number < 12; number++) {
                    update.setString(1, "größe " + number);
                    update.setString(2, "größe " + number);
                    update.setInt(3, number);
                    equal("update " + number, update.executeUpdate(), number % 4 == 3 ? 0 : 1);
                }
            }
        }
    }

    static void errors() throws Exception {
        try (Connection conn = connect()) {
            conn.setAutoCommit(false);
            String insert = "insert into jdbc_t (id, name) values (?, ?)";
            try (PreparedStatement statement = conn.prepareStatement(insert)) {
                for (int round = 0; round < 8; round++) {
                    statement.setInt(1, 100);
                    statement.setString(2, "x");
                    statement.executeUpdate();
                    equal("a unique violation", sqlstate(statement::executeUpdate), "23505");
                    equal("in a failed block", sqlstate(() -> execute(conn, "select 1")), "25P02");
                    conn.rollback();
                }
            }
            equal("a syntax error", sqlstate(() -> execute(conn, "selec 1")), "42601");
            conn.rollback();
            Savepoint savepoint = conn.setSavepoint();
            equal("behind a savepoint", sqlstate(() -> execute(conn, "insert into jdbc_t (id) values (1)")), "23505");
            conn.rollback(savepoint);
            execute(conn, "insert into jdbc_t (id) values (100)");
            conn.commit();
            equal("what is left", first(conn, "select count(*) from jdbc_t"), 13L);
            conn.rollback();
            conn.setTransactionIsolation(Connection.TRANSACTION_SERIALIZABLE);
            conn.setReadOnly(true);
            equal("read only", sqlstate(() -> execute(conn, "delete from jdbc_t")), "25006");
            conn.rollback();
        }
    }

    static void move(CyclicBarrier both, int source, int target, List<String> retries) throws Exception {
        try (Connection conn = connect()) {
            conn.setAutoCommit(false);
            String update = "update jdbc_account set balance = balance + ? where id = ?";
            try (PreparedStatement statement = conn.prepareStatement(update)) {
                boolean first = true;
                while (true) {
                    try {
                        statement.setInt(1, -10);
                        statement.setInt(2, source);
                        statement.executeUpdate();
                        if (first) {
                            first = false;
                            both.await(60, TimeUnit.SECONDS);
                        }
                        statement.setInt(1, 10);
                        statement.setInt(2, target);
                        statement.executeUpdate();
                        conn.commit();
                        return;
                    } catch (SQLException error) {
                        conn.rollback();
                        retries.add(error.getSQLState().substring(0, 2));
                        if (!error.getSQLState().startsWith("40")) {
                            throw error;
                        }
                    }
                }
            }
        }
    }

    /** Two connections lock two rows in opposite orders; the victim runs again. */
    static void conflicts() throws Exception {
        try (Connection conn = connect()) {
            execute(conn, "create table jdbc_account (id int primary key, balance int)");
            execute(conn, "insert into jdbc_account values (1, 100), (2, 100)");
            CyclicBarrier both = new CyclicBarrier(2);
            List<String> retries = Collections.synchronizedList(new ArrayList<>());
            List<Exception> errors = Collections.synchronizedList(new ArrayList<>());
            Thread other = new Thread(() -> {
                try {
                    move(both, 2, 1, retries);
                } catch (Exception error) {
                    errors.add(error);
                }
            });
            other.start();
            move(both, 1, 2, retries);
            other.join();
            equal("errors of the other", errors, List.of());
            equal("a victim of class 40", retries, List.of("40"));
            equal("both moves are done", first(conn, "select count(*) from jdbc_account where balance = 100"), 2L);
        }
    }

    static void bulk() throws Exception {
        for (String rewrite : new String[] {"", "&reWriteBatchedInserts=true"}) {
            try (Connection conn = DriverManager.getConnection(URL + rewrite)) {
                conn.setAutoCommit(false);
                try (PreparedStatement insert = conn.prepareStatement(INSERT)) {
                    for (int number = 1000; number < 1500; number++) {
                        bind(insert, number);
                        insert.addBatch();
                    }
                    equal("a batch" + rewrite, insert.executeBatch().length, 500);
                }
                equal("its rows", first(conn, "select count(*) from jdbc_t where id >= 1000"), 500L);
                conn.rollback();
            }
        }
        try (Connection conn = connect()) {
            execute(conn, "create table jdbc_bulk (id int primary key, name text)");
            StringBuilder text = new StringBuilder();
            for (int number = 0; number < 1000; number++) {
                text.append(number).append(number % 2 == 0 ? "\tgröße\n" : "\t\\N\n");
            }
            CopyManager copy = conn.unwrap(PGConnection.class).getCopyAPI();
            byte[] bytes = text.toString().getBytes(StandardCharsets.UTF_8);
            equal("COPY FROM", copy.copyIn("copy jdbc_bulk from stdin", new ByteArrayInputStream(bytes)), 1000L);
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            equal("COPY TO", copy.copyOut("copy jdbc_bulk to stdout", out), 1000L);
            equal("what was copied", out.toByteArray().length, bytes.length);
            conn.setAutoCommit(false);
            try (Statement statement = conn.createStatement()) {
                statement.setFetchSize(7);
                int count = 0;
                try (ResultSet found = statement.executeQuery("select id from jdbc_bulk order by id")) {
                    while (found.next()) {
                        count++;
                    }
                }
                equal("rows by sevens", count, 1000);
            }
            conn.rollback();
        }
    }

    static void arrays() throws Exception {
        try (Connection conn = connect()) {
            try (PreparedStatement select = conn.prepareStatement("select count(*) from jdbc_t where id = any(?)")) {
                for (int round = 0; round < 8; round++) {
                    select.setArray(1, conn.createArrayOf("int4", new Integer[] {1, 2, 2000}));
                    try (ResultSet found = select.executeQuery()) {
                        found.next();
                        equal("= ANY", found.getLong(1), 2L);
                    }
                }
            }
        }
    }

    static void pool() throws Exception {
        HikariConfig config = new HikariConfig();
        config.setJdbcUrl(URL);
        config.setMaximumPoolSize(1);
        try (HikariDataSource pool = new HikariDataSource(config)) {
            for (int round = 0; round < 8; round++) {
                try (Connection conn = pool.getConnection()) {
                    conn.setAutoCommit(false);
                    equal("from the pool", first(conn, "select name from jdbc_t where id = 1"), "größe 1");
                    equal("an error", sqlstate(() -> execute(conn, "insert into jdbc_t (id) values (1)")), "23505");
                }
            }
        }
    }

    static void limits() throws Exception {
        try (Connection conn = DriverManager.getConnection(URL + "&options=-c%20statement_timeout=50ms")) {
            equal("a statement's time is up", sqlstate(() -> execute(conn, LONG)), "57014");
        }
        try (Connection conn = connect(); Statement statement = conn.createStatement()) {
            // The driver sends a cancel request when its own time is up.
            statement.setQueryTimeout(1);
            equal("a time-out of the driver", sqlstate(() -> statement.execute(LONG)), "57014");
            equal("after it", first(conn, "select 1"), 1);
        }
    }

    static void part(String name, Work work) {
        try {
            work.run();
        } catch (Exception error) {
            equal(name, error, "no error");
        }
    }

    public static void main(String[] arguments) {
        part("rows", Jdbc::rows);
        part("errors", Jdbc::errors);
        part("conflicts", Jdbc::conflicts);
        part("bulk", Jdbc::bulk);
        part("arrays", Jdbc::arrays);
        part("pool", Jdbc::pool);
        part("limits", Jdbc::limits);
        if (failed > 0) {
            System.out.println("driver: " + NAME + " failed " + failed + " of " + (passed + failed) + " checks");
            System.exit(1);
        }
        System.out.println("driver: " + NAME + " passed " + passed + " checks");
    }
}
