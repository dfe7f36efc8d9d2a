import java.math.BigDecimal;
import java.sql.*;
import java.util.*;

/** Reads and changes events by the JDBC driver of Flight SQL. Called by scripts/clients.sh: JdbcCheck HOST:PORT TOKEN */
public class JdbcCheck {
    static void expect(Object found, Object expected) {
        if (!Objects.equals(found, expected)) {
            throw new AssertionError("expected " + expected + ", found " + found);
        }
    }

    interface Call {
        void run() throws Exception;
    }

    static void refused(String part, Call call) {
        try {
            call.run();
        } catch (Exception error) {
            StringBuilder all = new StringBuilder();
            for (Throwable cause = error; cause != null; cause = cause.getCause()) {
                all.append(cause.getMessage()).append('\n');
            }
            if (!all.toString().contains(part)) {
                throw new AssertionError("expected `" + part + "` in: " + all);
            }
            return;
        }
        throw new AssertionError("no error with `" + part + "`");
    }

    static List<String> texts(ResultSet rows, int column) throws SQLException {
        List<String> texts = new ArrayList<>();
        try (rows) {
            while (rows.next()) {
                texts.add(rows.getString(column));
            }
        }
        return texts;
    }

    static void rows(Connection connection) throws Exception {
        try (Statement statement = connection.createStatement()) {
            ResultSet rows = statement.executeQuery("select value as n, 'row ' || value as t from generate_series(1, 20000) order by n");
            int count = 0;
            while (rows.next()) {
                count++;
                expect(rows.getLong("n"), (long) count);
            }
            expect(count, 20000);
            refused("there is no table", () -> statement.executeQuery("select * from nothing"));
        }
    }

    static void parameters(Connection connection) throws Exception {
        String text = "select $1::bigint + 1, $2::varchar, $3::double, $4::boolean, $5::timestamptz, $6::bigint";
        try (PreparedStatement statement = connection.prepareStatement(text)) {
            expect(statement.getParameterMetaData().getParameterCount(), 6);
            for (long n = 1; n <= 3; n++) {
                statement.setLong(1, n);
                statement.setString(2, "é" + n);
                statement.setDouble(3, 1.5);
                statement.setBoolean(4, true);
                statement.setTimestamp(5, new Timestamp(1767603600000L), Calendar.getInstance(TimeZone.getTimeZone("UTC")));
                statement.setNull(6, Types.BIGINT);
                ResultSet rows = statement.executeQuery();
                expect(rows.next(), true);
                expect(rows.getLong(1), n + 1);
                expect(rows.getString(2), "é" + n);
                expect(rows.getDouble(3), 1.5);
                expect(rows.getBoolean(4), true);
                expect(rows.getTimestamp(5, Calendar.getInstance(TimeZone.getTimeZone("UTC"))).getTime(), 1767603600000L);
                expect(rows.getObject(6), null);
                expect(rows.next(), false);
            }
        }
    }

    static void catalogs(Connection connection) throws Exception {
        DatabaseMetaData data = connection.getMetaData();
        expect(data.getDatabaseProductName(), "Tidemill");
        expect(data.supportsTransactions(), false);
        expect(data.getIdentifierQuoteString(), "\"");
        expect(texts(data.getCatalogs(), 1), List.of("tidemill"));
        expect(texts(data.getSchemas("tidemill", "ev%"), 1), List.of("events"));
        expect(texts(data.getTables(null, "events", "weath__", new String[] {"TABLE"}), 3), List.of("weather"));
        List<String> columns = texts(data.getColumns(null, "events", "weather", "%"), 4);
        expect(columns.subList(0, 3), List.of("time", "station", "celsius"));
        expect(texts(data.getPrimaryKeys(null, "events", "weather"), 4), List.of());
    }

    static void changes(Connection connection) throws Exception {
        try (Statement statement = connection.createStatement()) {
            expect(statement.executeUpdate("delete from events.weather where station = 'none'"), 0);
        }
        try (PreparedStatement statement = connection.prepareStatement("delete from events.weather where station = 'none'")) {
            expect(statement.executeUpdate(), 0);
        }
    }

    static void cancelling(Connection connection) throws Exception {
        String text = "select count(*) from generate_series(1, 1000000) a cross join generate_series(1, 1000000) b where a.value % 7 = b.value % 13";
        try (Statement statement = connection.createStatement()) {
            Timer timer = new Timer(true);
            timer.schedule(new TimerTask() {
                public void run() {
                    try {
                        statement.cancel();
                    } catch (SQLException error) {
                        System.err.println(error);
                    }
                }
            }, 300);
            refused("ancel", () -> {
                ResultSet rows = statement.executeQuery(text);
                rows.next();
            });
        }
    }

    static int failed = 0;

    static void check(String title, Call call) {
        try {
            call.run();
            System.out.println("flight-sql-jdbc: " + title + ": ok");
        } catch (Throwable error) {
            failed = 1;
            System.out.println("flight-sql-jdbc: " + title + ": FAILED: " + error);
        }
    }

    public static void main(String[] arguments) throws Exception {
        String url = "jdbc:arrow-flight-sql://" + arguments[0] + "/?useEncryption=false";
        Properties password = new Properties();
        password.put("user", "admin");
        password.put("password", arguments[1]);
        try (Connection connection = DriverManager.getConnection(url, password)) {
            check("rows", () -> rows(connection));
            check("parameters", () -> parameters(connection));
            check("catalogs", () -> catalogs(connection));
            check("changes", () -> changes(connection));
            check("cancelling", () -> cancelling(connection));
        }
        check("a token and a wrong one", () -> {
            try (Connection connection = DriverManager.getConnection(url + "&token=" + arguments[1])) {
                rows(connection);
            }
            refused("wrong", () -> DriverManager.getConnection(url + "&token=wrong").createStatement().executeQuery("select 1"));
        });
        System.exit(failed);
    }
}
