import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.ResultSetMetaData;
import java.sql.SQLException;
import java.sql.SQLWarning;
import java.sql.Statement;
import java.sql.Types;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.postgresql.PGConnection;
import org.postgresql.util.PSQLException;

/** JDBC drivers of the corpus; see ../README.md. The first argument is the URL scheme: mysql or postgresql. */
public final class Corpus {
    private static final Gson GSON = new GsonBuilder().serializeNulls().disableHtmlEscaping().create();
    private static String[] arguments;

    public static void main(String[] given) throws Exception {
        arguments = given;
        JsonArray cases = JsonParser.parseString(Files.readString(Path.of(given[6]))).getAsJsonArray();
        Map<String, Connection> clients = new LinkedHashMap<>();
        for (String name : List.of("A", "B")) clients.put(name, connect(name));
        for (JsonElement each : cases) {
            JsonObject one = each.getAsJsonObject();
            for (String name : List.of("A", "B")) {
                List<Object> steps = new ArrayList<>();
                for (JsonElement step : one.getAsJsonArray("steps")) steps.add(step(clients.get(name), step.getAsJsonObject()));
                say(Map.of("case", one.get("name").getAsString(), "client", name, "steps", steps));
                if (one.get("pins").getAsBoolean()) {
                    clients.get(name).close();
                    clients.put(name, connect(name));
                }
            }
        }
    }

    private static Connection connect(String name) throws SQLException {
        boolean mysql = arguments[0].equals("mysql");
        String options = mysql
            ? "?sslMode=DISABLED&allowPublicKeyRetrieval=true&useServerPrepStmts=true&allowMultiQueries=true&useCursorFetch=true&yearIsDateType=false&noDatetimeStringSync=true"
            : "?sslmode=disable&prepareThreshold=1";
        String url = "jdbc:" + arguments[0] + "://" + arguments[1] + ":" + arguments[2] + "/" + arguments[5] + options;
        Connection conn = DriverManager.getConnection(url, arguments[3], arguments[4]);
        say(Map.of("login", name, "server_version", conn.getMetaData().getDatabaseProductVersion()));
        return conn;
    }

    private static List<Object> step(Connection conn, JsonObject step) throws Exception {
        List<Object> results = new ArrayList<>();
        String sql = step.get("sql").getAsString();
        try {
            switch (step.get("do").getAsString()) {
                case "query" -> {
                    try (Statement statement = conn.createStatement()) {
                        all(statement, statement.execute(sql, Statement.RETURN_GENERATED_KEYS), results);
                    }
                }
                case "prepare" -> prepare(conn, step, results);
                case "fetch" -> fetch(conn, sql, step.get("size").getAsInt(), results);
                case "copy_in" -> results.add(conn.unwrap(PGConnection.class).getCopyAPI()
                    .copyIn(sql, new ByteArrayInputStream(step.get("data").getAsString().getBytes(StandardCharsets.UTF_8))));
                case "copy_out" -> {
                    ByteArrayOutputStream out = new ByteArrayOutputStream();
                    results.add(conn.unwrap(PGConnection.class).getCopyAPI().copyOut(sql, out));
                    results.add(cell(out.toByteArray()));
                }
                default -> results.add(conn.isValid(10));
            }
        } catch (SQLException error) {
            results.add(failure(error));
        }
        return results;
    }

    private static void prepare(Connection conn, JsonObject step, List<Object> results) throws Exception {
        String sql = step.get("sql").getAsString().replaceAll("\\$\\d+", "?");
        try (PreparedStatement prepared = conn.prepareStatement(sql, keys())) {
            for (JsonElement set : step.getAsJsonArray("sets")) {
                int position = 0;
                for (JsonElement parameter : set.getAsJsonArray()) bind(prepared, ++position, parameter.getAsJsonArray());
                all(prepared, prepared.execute(), results);
            }
        }
    }

    /** Connector/J gives insert ids only if asked for; pgjdbc would add RETURNING to the statement. */
    private static int keys() {
        return arguments[0].equals("mysql") ? Statement.RETURN_GENERATED_KEYS : Statement.NO_GENERATED_KEYS;
    }

    private static void bind(PreparedStatement prepared, int position, JsonArray parameter) throws SQLException {
        JsonElement value = parameter.get(1);
        switch (parameter.get(0).getAsString()) {
            case "null" -> prepared.setNull(position, Types.NULL);
            case "bool" -> prepared.setBoolean(position, value.getAsBoolean());
            case "int", "bigint" -> prepared.setLong(position, value.getAsLong());
            case "float" -> prepared.setDouble(position, value.getAsDouble());
            case "decimal" -> prepared.setBigDecimal(position, new BigDecimal(value.getAsString()));
            case "bytes" -> prepared.setBytes(position, HexFormat.of().parseHex(value.getAsString()));
            case "date" -> prepared.setObject(position, java.time.LocalDate.parse(value.getAsString()));
            case "time" -> prepared.setObject(position, java.time.LocalTime.parse(value.getAsString()));
            case "timestamp" -> prepared.setObject(position, java.time.LocalDateTime.parse(value.getAsString()));
            case "timestamptz" -> prepared.setObject(position, java.time.OffsetDateTime.parse(value.getAsString()));
            case "uuid" -> prepared.setObject(position, java.util.UUID.fromString(value.getAsString()));
            case "ints" -> prepared.setArray(position, prepared.getConnection().createArrayOf("int4", GSON.fromJson(value, Integer[].class)));
            case "texts" -> prepared.setArray(position, prepared.getConnection().createArrayOf("text", GSON.fromJson(value, String[].class)));
            default -> prepared.setString(position, value.getAsString());
        }
    }

    /** Rows in batches of `size`; PostgreSQL keeps a portal only inside a transaction. */
    private static void fetch(Connection conn, String sql, int size, List<Object> results) throws SQLException {
        conn.setAutoCommit(false);
        try (PreparedStatement prepared = conn.prepareStatement(sql, keys())) {
            prepared.setFetchSize(size);
            all(prepared, prepared.execute(), results);
        } finally {
            conn.rollback();
            conn.setAutoCommit(true);
        }
    }

    /** Every result of a statement: rows, or counts with generated keys; then the warnings. */
    private static void all(Statement statement, boolean rows, List<Object> results) throws SQLException {
        while (rows || statement.getUpdateCount() != -1) {
            if (rows) {
                results.add(read(statement.getResultSet()));
            } else {
                try (ResultSet keys = statement.getGeneratedKeys()) {
                    results.add(List.of(statement.getLargeUpdateCount(), read(keys)));
                }
            }
            rows = statement.getMoreResults();
        }
        for (SQLWarning warning = statement.getWarnings(); warning != null; warning = warning.getNextWarning()) {
            results.add(List.of(warning.getErrorCode(), String.valueOf(warning.getSQLState()), String.valueOf(warning.getMessage())));
        }
    }

    private static Object read(ResultSet found) throws SQLException {
        ResultSetMetaData about = found.getMetaData();
        List<Object> columns = new ArrayList<>();
        for (int i = 1; i <= about.getColumnCount(); i++) {
            columns.add(Arrays.asList(about.getColumnLabel(i), about.getColumnName(i), about.getTableName(i), about.getColumnTypeName(i), about.getColumnType(i),
                about.getPrecision(i), about.getScale(i), about.getColumnDisplaySize(i), about.isNullable(i), about.isSigned(i)));
        }
        List<Object> rows = new ArrayList<>();
        while (found.next()) {
            List<String> row = new ArrayList<>();
            for (int i = 1; i <= columns.size(); i++) row.add(cell(found.getBytes(i)));
            rows.add(row);
        }
        return Map.of("columns", columns, "rows", rows);
    }

    /** A value as the server sent it; long ones by length and digest. */
    private static String cell(byte[] value) {
        if (value == null) return "NULL";
        String text = new String(value, StandardCharsets.ISO_8859_1);
        return text.length() <= 1000 ? text : text.length() + " bytes: " + digest(value);
    }

    private static String digest(byte[] value) {
        try {
            return HexFormat.of().formatHex(MessageDigest.getInstance("MD5").digest(value));
        } catch (java.security.NoSuchAlgorithmException impossible) {
            throw new IllegalStateException(impossible);
        }
    }

    private static Object failure(SQLException error) {
        Object details = error instanceof PSQLException e && e.getServerErrorMessage() != null ? e.getServerErrorMessage().toString() : "";
        return Map.of("error", List.of(error.getErrorCode(), String.valueOf(error.getSQLState()), String.valueOf(error.getMessage()), details));
    }

    private static void say(Object line) {
        System.out.println(GSON.toJson(line));
    }
}
