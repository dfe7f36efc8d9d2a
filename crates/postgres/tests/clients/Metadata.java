import java.sql.Connection;
import java.sql.DatabaseMetaData;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.ResultSetMetaData;

/** Prints what DatabaseMetaData tells of a database. Called by check.py with the URL, the user and the password. */
public class Metadata {
    static void print(String name, ResultSet rows, int... columns) throws Exception {
        while (rows.next()) {
            StringBuilder line = new StringBuilder(name).append(": ");
            for (int at = 0; at < columns.length; at++) {
                line.append(at > 0 ? "|" : "").append(rows.getString(columns[at]));
            }
            System.out.println(line);
        }
        rows.close();
    }

    public static void main(String[] arguments) throws Exception {
        try (Connection connection = DriverManager.getConnection(arguments[0], arguments[1], arguments[2])) {
            DatabaseMetaData metadata = connection.getMetaData();
            String[] types = {"TABLE", "VIEW", "MATERIALIZED VIEW"};
            print("catalogs", metadata.getCatalogs(), 1);
            print("schemas", metadata.getSchemas(), 1, 2);
            print("schemas of a pattern", metadata.getSchemas(null, "e%"), 1);
            print("tables", metadata.getTables(null, null, "%", types), 1, 2, 3, 4, 5);
            print("all", metadata.getTables(null, "pg_catalog", "%", null), 3, 4);
            print("table types", metadata.getTableTypes(), 1);
            print("columns", metadata.getColumns(null, "events", "%", "%"), 3, 4, 5, 6, 7);
            print("columns of collections", metadata.getColumns(null, "docs", "%", "%"), 3, 4);
            print("keys", metadata.getPrimaryKeys(null, "events", "Reading"), 3, 4, 5, 6);
            print("indexes", metadata.getIndexInfo(null, "events", "Reading", true, false), 3, 4, 6, 7, 8, 9, 10);
            print("best row", metadata.getBestRowIdentifier(null, "events", "Reading", 2, true), 2, 3);
            print("imported keys", metadata.getImportedKeys(null, "events", "Reading"), 3);
            print("exported keys", metadata.getExportedKeys(null, "events", "Reading"), 3);
            print("cross reference", metadata.getCrossReference(null, "events", "Reading", null, "docs", "Device"), 3);
            print("types", metadata.getTypeInfo(), 1, 2);
            print("functions", metadata.getFunctions(null, null, "array_to%"), 3);
            print("columns of functions", metadata.getFunctionColumns(null, null, "array_to%", "%"), 3, 4);
            print("procedures", metadata.getProcedures(null, null, "%"), 3);
            print("privileges", metadata.getTablePrivileges(null, "events", "Reading"), 3, 6);
            print("own types", metadata.getUDTs(null, null, "%", null), 3);
            System.out.println("words: " + metadata.getSQLKeywords().length());
            System.out.println("longest name: " + metadata.getMaxColumnNameLength());
            try (PreparedStatement statement =
                    connection.prepareStatement("select id, lanes from events.\"Reading\" where lanes > ?")) {
                statement.setInt(1, 0);
                ResultSetMetaData columns = statement.executeQuery().getMetaData();
                System.out.println("result: " + columns.getColumnTypeName(1) + "|" + columns.getColumnTypeName(2));
            }
        }
    }
}
