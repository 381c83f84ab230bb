// The ring: ROWS records of ROW_BITS bits and the index of the oldest, which is where the next one goes (figure 4c of
// state-compute replication). All of it is read at once; one row is written in a cycle.
//
// The rows are flip-flops with a write enable each, so that a reset clears them: a row that was never written is zero.
module ring #(
    parameter ROWS = 16,
    parameter ROW_BITS = 112
) (
    input  wire                     clk,
    input  wire                     rst,
    input  wire                     write,
    input  wire [ROW_BITS-1:0]      row,
    output wire [ROWS*ROW_BITS-1:0] rows,   // row 0 on top
    output wire [15:0]              index
);
    localparam INDEX_BITS = ROWS > 1 ? $clog2(ROWS) : 1;
    localparam integer LAST = ROWS - 1;

    reg [INDEX_BITS-1:0] oldest;
    assign index = {{(16 - INDEX_BITS){1'b0}}, oldest};

    always @(posedge clk) begin
        if (rst) oldest <= 0;
`ifdef FAULT_WRAP
        else if (write) oldest <= oldest + 1'b1;
`else
        else if (write) oldest <= oldest == LAST[INDEX_BITS-1:0] ? {INDEX_BITS{1'b0}} : oldest + 1'b1;
`endif
    end

    genvar i;
    generate
        for (i = 0; i < ROWS; i = i + 1) begin : each
            row #(.BITS(ROW_BITS)) row_of_ring (
                .clk(clk), .rst(rst), .write(write && oldest == i), .in(row),
                .bits(rows[(ROWS-1-i)*ROW_BITS +: ROW_BITS])
            );
        end
    endgenerate
endmodule

// A row: zero until it is written. A module of its own, so that synthesis does it once.
module row #(
    parameter BITS = 112
) (
    input  wire            clk,
    input  wire            rst,
    input  wire            write,
    input  wire [BITS-1:0] in,
    output reg  [BITS-1:0] bits
);
    always @(posedge clk) begin
        if (rst) bits <= 0;
        else if (write) bits <= in;
    end
endmodule
