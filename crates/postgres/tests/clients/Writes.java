import java.io.StringReader;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Timestamp;
import java.time.Instant;
import org.postgresql.PGConnection;

/** Writes events with pgjdbc. Called by check.py with the URL, the user and the password. */
public class Writes {
    static long count(Connection connection, String prefix) throws Exception {
        try (PreparedStatement statement =
                connection.prepareStatement("select count(*) from events.\"Sent\" where client = 'jdbc' and id like ?")) {
            statement.setString(1, prefix + "%");
            ResultSet rows = statement.executeQuery();
            rows.next();
            return rows.getLong(1);
        }
    }

    static void batch(Connection connection, String prefix, int rows) throws Exception {
        String text = "INSERT INTO \"Sent\" (id, client, n, speed, seen, at) VALUES (?, 'jdbc', ?, ?, ?, ?)";
        try (PreparedStatement statement = connection.prepareStatement(text)) {
            for (int row = 0; row < rows; row++) {
                statement.setString(1, prefix + row);
                statement.setInt(2, row);
                statement.setDouble(3, row / 2.0);
                statement.setBoolean(4, row % 2 == 0);
                statement.setTimestamp(5, Timestamp.from(Instant.ofEpochSecond(1714557600 + row)));
                statement.addBatch();
            }
            System.out.println("batch " + prefix + ": " + statement.executeBatch().length);
        }
    }

    public static void main(String[] arguments) throws Exception {
        for (String rewrite : new String[] {"false", "true"}) {
            String url = arguments[0] + "?reWriteBatchedInserts=" + rewrite;
            try (Connection connection = DriverManager.getConnection(url, arguments[1], arguments[2])) {
                String prefix = "batch-" + rewrite + "-";
                batch(connection, prefix, 300);
                System.out.println("stored " + prefix + ": " + count(connection, prefix));
                connection.setAutoCommit(false);
                batch(connection, prefix + "lost-", 10);
                connection.rollback();
                batch(connection, prefix + "kept-", 10);
                connection.commit();
                System.out.println("lost " + prefix + ": " + count(connection, prefix + "lost-"));
                System.out.println("kept " + prefix + ": " + count(connection, prefix + "kept-"));
            }
        }
        try (Connection connection = DriverManager.getConnection(arguments[0], arguments[1], arguments[2])) {
            var copies = connection.unwrap(PGConnection.class).getCopyAPI();
            StringBuilder rows = new StringBuilder();
            for (int row = 0; row < 20000; row++) {
                rows.append("copy-").append(row).append(",jdbc,").append(row).append('\n');
            }
            String copy = "COPY events.\"Sent\" (id, client, n) FROM STDIN (FORMAT csv)";
            System.out.println("copied: " + copies.copyIn(copy, new StringReader(rows.toString())));
            System.out.println("stored copy: " + count(connection, "copy-"));
            try {
                copies.copyIn(copy, new StringReader("bad-1,jdbc,1\nbad-2,jdbc,x\n"));
            } catch (SQLException refused) {
                System.out.println("refused: " + refused.getSQLState());
            }
            System.out.println("stored bad: " + count(connection, "bad-"));
            try (PreparedStatement statement =
                    connection.prepareStatement("INSERT INTO \"Sent\" (id, client) VALUES (?, 'jdbc') RETURNING id, _row")) {
                statement.setString(1, "one");
                ResultSet row = statement.executeQuery();
                row.next();
                System.out.println("returned: " + row.getString(1) + "|" + row.getInt(2));
            }
        }
    }
}
