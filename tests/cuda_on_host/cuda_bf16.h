// It converts to float32 and back, rounded to nearest, as CUDA's own class.
struct __nv_bfloat16 {
    unsigned short bits;
    operator float() const {
        unsigned wide = (unsigned)bits << 16; float value; memcpy(&value, &wide, 4);
        return value;
    }
    __nv_bfloat16& operator=(float value) {
        unsigned wide; memcpy(&wide, &value, 4);
        bits = value != value ? 0x7fff : (wide + 0x7fff + (wide >> 16 & 1)) >> 16;
        return *this;
    }
};
