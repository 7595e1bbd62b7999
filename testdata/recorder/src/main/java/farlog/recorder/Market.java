package farlog.recorder;

import java.math.BigDecimal;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;

/** The instruments of the simulated market: made-up opening prices in cents that walk as the host draws from them. */
final class Market {
    private static final String OPENING =
            "AAPL 22745 MSFT 41832 NVDA 13577 AMZN 19814 GOOG 17961 META 56320 TSLA 24150 BRKB 46211 JPM 21980 V 28745 "
            + "UNH 58910 XOM 11852 JNJ 16044 WMT 8105 PG 17233 MA 49876 HD 40120 CVX 15077 MRK 10955 ABBV 19421 KO 6980 "
            + "PEP 17144 COST 88890 AVGO 17266 LLY 91533 TMO 60711 MCD 30155 CSCO 5344 ACN 35512 ABT 11398 DHR 27033 "
            + "NKE 8271 DIS 9622 TXN 20477 VZ 4411 NEE 8399 PM 12107 CMCSA 4188 ADBE 51890 WFC 5640 BMY 5172 RTX 12266 "
            + "UPS 13340 HON 20588 QCOM 17001 T 2203 LOW 27080 AMGN 32215 INTC 2260 SPGI 51877 CAT 39012 IBM 22055 GE 18840 "
            + "BA 15535 DE 41505 GS 49540 MS 10420 BLK 94877 AXP 27120 ISRG 49011 MDT 8998 SYK 36122 BKNG 421050 PLD 12633 "
            + "GILD 8388 ADI 23017 TJX 11744 MMC 22310 LMT 60588 CB 28833 VRTX 46520 CI 34611 MO 5109 SO 9018 DUK 11530 "
            + "ZTS 19544 BSX 8380 SCHW 6477 C 6270 PGR 25377 EOG 12290 SLB 4195 BDX 24110 CME 22067 ICE 16063 AON 34599 "
            + "ITW 26201 NOC 52800 GD 30222 MU 10177 KLAC 77440 LRCX 8160 AMAT 20205 PANW 34180 SNPS 50640 CDNS 27102 "
            + "ORCL 17040 CRM 27370 NOW 89433 INTU 62100 UBER 7516 ABNB 12681 PYPL 7803 SQ 6713 SHOP 8014 SNOW 11486 "
            + "F 1056 GM 4484 DAL 5079 UAL 5706 AAL 1123 LUV 2963 MAR 24860 HLT 23050 SBUX 9749 CMG 5762 YUM 13971 "
            + "KHC 3511 GIS 7385 K 8071 CL 10380 KMB 14228";

    private final Map<String, Long> cents = new LinkedHashMap<>();
    private final List<String> symbols;

    Market() {
        final String[] words = OPENING.split(" ");
        for (int i = 0; i < words.length; i += 2) {
            cents.put(words[i], Long.parseLong(words[i + 1]));
        }
        symbols = List.copyOf(cents.keySet());
    }

    List<String> symbols() {
        return symbols;
    }

    boolean isListed(final String symbol) {
        return cents.containsKey(symbol);
    }

    /** A symbol by its share of the flow: the first ones trade most, as on a real market. */
    String draw(final Random random) {
        final double u = random.nextDouble();
        return symbols.get((int) (u * u * symbols.size()));
    }

    /** Moves the price of a symbol by up to three ticks and returns it in cents. */
    long walk(final String symbol, final Random random) {
        final long moved = Math.max(100, cents.get(symbol) + random.nextInt(7) - 3);
        cents.put(symbol, moved);
        return moved;
    }

    long price(final String symbol) {
        return cents.get(symbol);
    }

    static String format(final long priceCents) {
        return BigDecimal.valueOf(priceCents, 2).toPlainString();
    }
}
